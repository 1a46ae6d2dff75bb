"""What callers ask: one folder a question."""
