"""How is a comparison asked for, beside its question: what is a cluster called, how do clusters and prices meet?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len

from service.estimator.noun import STRICT, Name
from service.estimator.question import Layout, Recipe
from service.workflows.nouns import field_names

MOST_ROWS = 1_000
"""Rows of one comparison."""

Pairing = Literal["product", "zip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How the rows of a comparison are made, shown and ordered."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    pair: Pairing = "product"
    """product: every cluster at every price. zip: the first cluster at the first price, and so on."""
    sort_by: Name | None = None
    """Number to sort by, by the name that cells give it; cost_usd where absent, or else gpu_hours, or step_seconds,
    the first of them that a row knows."""
    descending: bool = False
    """Whether the largest comes first."""
    columns: Annotated[tuple[Name, ...], Len(1, 40)] | None = None
    """Numbers of each row, by the names that cells give them; those that most callers want where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What a cluster is called in the rows of a comparison."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: Annotated[str, Len(1, 120)] | None = None
    """What to call it; the name of its preset where absent."""


QUESTION, CLUSTERS, PRICES = "question", "clusters", "prices"
"""What is asked, and the lists that it is asked for."""

CHANGED: Mapping[str, type] = {"recipe": Recipe, "layout": Layout}
"""Parts of the question that a cluster may have fields of its own in, and the nouns that they spell."""

OF_A_CLUSTER = ("cluster", *field_names(Called), *CHANGED, "price")
"""What an object in the list of clusters may hold, where it is more than a cluster."""

FIELDS = (QUESTION, CLUSTERS, PRICES, *field_names(Manner))
"""What a comparison is made of."""

COMPARED = (*FIELDS, *OF_A_CLUSTER)
"""Every name that the body of a comparison may hold beside the nouns of its question."""
