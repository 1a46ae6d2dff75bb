"""Diagnosis of out-of-memory errors."""
