"""How is an open field asked for, beside its question?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Interval, Le, Lt

from service.answers.solutions import UnknownName
from service.estimator.noun import STRICT, Name
from service.planner.serving_cost import SERVING_MFU_FRACTION
from service.workflows.comparison_label import CLUSTERS, PRICES, QUESTION
from service.workflows.nouns import field_names

LIMITS, SERVING = "limits", "serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which field is open, and which values of it are of use."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    unknown: UnknownName
    """The open field: the largest micro_batch, sequence_length, training_tokens, num_hidden_layers or hidden_size, the
    fewest gpus, the plan of a global_batch, the cheapest cluster, or (model) the size that makes most of a budget."""
    multiple_of: Annotated[int, Interval(ge=1, le=1 << 20)] = 1
    """What the value has to be a multiple of; read where it is one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the trained model is used on, where a limit says what its tokens may cost."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    gpu: Name | None = None
    """Catalogue name of the GPU; the question's where absent. Its dense bf16 peak counts."""
    usd_per_gpu_hour: Annotated[float, Ge(1e-4), Lt(1e6)] | None = None
    """What it costs; the question's price where absent."""
    mfu_fraction: Annotated[float, Gt(0), Le(1)] = SERVING_MFU_FRACTION
    """Share of that peak that tokens in use keep busy."""


SOLVED_FROM = (*field_names(Wish), QUESTION, LIMITS, SERVING, CLUSTERS, PRICES)
"""What the body of POST /v1/solve may hold."""
