"""Estimates of one question: whole, in part, explained, over a step, by other tools' methods."""
