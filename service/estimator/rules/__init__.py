"""Conditions that a question has to meet, each with a name and a message."""
