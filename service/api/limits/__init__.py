"""Limits: requests of a caller, and sizes and durations of HTTP."""
