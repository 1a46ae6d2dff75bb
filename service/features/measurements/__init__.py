"""Measurements: imported, checked, listed and passed on."""
