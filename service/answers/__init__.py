"""Dataclasses of what is answered, around the estimator's own numbers."""
