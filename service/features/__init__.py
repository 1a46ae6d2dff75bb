"""Features: one folder for each question that callers ask."""
