"""Training of a question's model in torch: decoder, recipe, steps, and memory at each moment."""
