"""What changed between two questions, and what each change costs."""
