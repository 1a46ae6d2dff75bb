"""Predictions against published runs, offline."""
