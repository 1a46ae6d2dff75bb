"""Predictions against published measurements, offline."""
