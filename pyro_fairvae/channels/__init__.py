"""Channels P(ã|a) and P(ỹ|y), and the language of their priors."""
