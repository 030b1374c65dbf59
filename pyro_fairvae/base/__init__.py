"""What everything stands on: errors, options, seeds and files."""
