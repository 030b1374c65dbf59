"""One SVI run for a whole frontier: program, objective, optimizer, training, and its result."""
