"""Strict reading of JSON into dataclasses, and findings as problems."""
