"""Accuracy of predictions against published measurements."""
