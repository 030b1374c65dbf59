"""P(ã|a) and P(ỹ|y): channels, and the language of their priors."""
