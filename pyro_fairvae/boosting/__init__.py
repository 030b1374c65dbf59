"""Boosted trees whose scores of a row come from trees that were not grown on it."""
