"""Experiments: a single run, and what is built of many."""
