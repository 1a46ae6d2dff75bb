"""Training frameworks: one file each, with the rules that write its fields and the reader of its files."""
