"""Networks: members stacked along a leading dimension, for tables and for images."""
