"""Sentences as questions."""
