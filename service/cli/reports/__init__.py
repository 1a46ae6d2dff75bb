"""Answers as text for a terminal, one module a family of commands."""
