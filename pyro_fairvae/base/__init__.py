"""Errors, options, seeds and files, on which all other packages depend."""
