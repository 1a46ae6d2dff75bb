"""What jobs of a scheduler took, beside what was predicted of them."""
