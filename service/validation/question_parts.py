"""Parts of a question, and the dataclasses that a request may spell each of them with."""

from collections.abc import Sequence

from service.estimator.question import Cluster, Layout, Model, OwnedPrice, Price, Recipe
from service.validation.clusters import Nodes
from service.validation.prices import CardPrice, CataloguePrice

QUESTION_SPECS: Sequence[tuple[str, type]] = (
    ("model", Model),
    ("recipe", Recipe),
    ("layout", Layout),
    ("cluster", Cluster),
    ("cluster", Nodes),
    ("price", Price),
    ("price", CataloguePrice),
    ("price", CardPrice),
    ("price", OwnedPrice),
)
"""Part of a question, and the dataclass that defines it."""

PARTS = tuple(dict.fromkeys(part for part, _ in QUESTION_SPECS))
"""The parts of a question."""
