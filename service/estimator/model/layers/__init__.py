"""Kinds of layer, one file a kind, each returning its operations for one sequence."""
