"""Sweeps: models, clusters, prices, recipes and layouts crossed, answered as one table."""
