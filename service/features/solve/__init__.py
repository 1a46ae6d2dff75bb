"""One open field of a question, solved for a limit."""
