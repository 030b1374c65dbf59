"""Who withholds: cross-fitted scores, the sampler of channels, summaries."""
