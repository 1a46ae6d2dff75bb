"""Admission checks for schedulers."""
