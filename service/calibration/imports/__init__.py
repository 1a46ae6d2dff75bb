"""Measurements of other tools: one module a format, from text to records."""
