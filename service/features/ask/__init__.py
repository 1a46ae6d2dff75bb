"""One sentence as a question, and its answer."""
