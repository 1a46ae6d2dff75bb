"""Reconciliation: finished jobs of a scheduler beside their predictions."""
