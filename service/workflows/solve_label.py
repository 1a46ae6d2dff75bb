"""How is an open field asked for, beside its question?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Interval

from service.estimator.noun import STRICT
from service.planner.unknowns import UnknownName
from service.workflows.comparison_label import CLUSTERS, PRICES, QUESTION
from service.workflows.nouns import field_names

LIMITS = "limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which field is open, and which values of it are of use."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    unknown: UnknownName
    """The open field: the largest micro_batch, sequence_length, training_tokens, num_hidden_layers or hidden_size, the
    fewest gpus, the plan of a global_batch, the cheapest cluster, or (model) the size that makes most of a budget."""
    multiple_of: Annotated[int, Interval(ge=1, le=1 << 20)] = 1
    """What the value has to be a multiple of; read where it is one number."""


SOLVED_FROM = (*field_names(Wish), QUESTION, LIMITS, CLUSTERS, PRICES)
"""What the body of POST /v1/solve may hold."""
