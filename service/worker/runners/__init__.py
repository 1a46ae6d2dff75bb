"""Runners of a worker: one file each."""
