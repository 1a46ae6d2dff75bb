"""What it takes to train a model: bytes, FLOP, seconds and money. Pure: no clock, no network, only its own tables."""

from service.estimator.answer import Estimate
from service.estimator.estimate import estimate, estimate_memory
from service.estimator.model.counts import count_parameters
from service.estimator.question import Cluster, Gpu, Layout, Model, Price, Question, Recipe, Recompute

FORMULAS_VERSION = "2026.11.13"
"""Changes whenever an answer to the same question may change."""

__all__ = [
    "FORMULAS_VERSION",
    "Cluster",
    "Estimate",
    "Gpu",
    "Layout",
    "Model",
    "Price",
    "Question",
    "Recipe",
    "Recompute",
    "count_parameters",
    "estimate",
    "estimate_memory",
]
