"""The operations of a model, its parameters and its FLOP."""
