"""One file for each family of paths."""
