"""How accurate predictions are, scored on published runs."""
