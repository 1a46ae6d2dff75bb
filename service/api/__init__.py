"""HTTP toolkit that features use."""
