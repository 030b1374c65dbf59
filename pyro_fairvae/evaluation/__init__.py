"""Error and unfairness of decisions, and which member to use."""
