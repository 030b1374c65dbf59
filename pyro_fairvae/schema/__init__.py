"""The types of rows: observed tables, attributes with their groups, images as rows."""
