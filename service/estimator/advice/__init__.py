"""Assumptions, warnings and changes that an answer names."""
