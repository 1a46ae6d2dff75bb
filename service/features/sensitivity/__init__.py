"""Some fields of a question varied, one row a value."""
