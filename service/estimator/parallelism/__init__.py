"""Axes of parallelism, one file an axis: its rules and its transfers."""
