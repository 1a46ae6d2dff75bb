"""Launchers: one file each, which starts the program of a training framework."""
