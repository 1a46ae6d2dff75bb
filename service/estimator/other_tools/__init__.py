"""Formulas of other tools, one file a tool, applied to the same question."""
