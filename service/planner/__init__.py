"""Planner: the best layouts, and the values of an open field with which a job still fits."""
