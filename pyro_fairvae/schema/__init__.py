"""What rows are made of: observed tables, attributes with their groups, images as rows."""
