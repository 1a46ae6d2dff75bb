"""What may an answer take at most, when one field of its question is left open?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from service.estimator.names import STRICT

End = Literal["value", "high"]
"""End of an interval that a limit is held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveLimits:
    """What the job may take at most while the open field grows or shrinks; it has to fit in any case."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    headroom_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the usable memory that stays free, beyond what the verdict `fits` asks for."""
    days: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """Wall time of the whole run."""
    cost_usd: Annotated[float, Ge(0), Lt(1e15)] | None = None
    """Cost of the whole run."""
    gpu_hours: Annotated[float, Gt(0), Lt(1e15)] | None = None
    """GPU-hours of the whole run."""
    total_flop: Annotated[float, Gt(0), Lt(1e35)] | None = None
    """Operations of the whole run (unknown `model`), instead of what time or money buys."""
    inference_per_token_flop: Annotated[float, Gt(0), Lt(1e20)] | None = None
    """Operations that one token may take when the trained model is used, 2 N (unknown `model`)."""
    inference_usd_per_million_tokens: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """What a million tokens may cost when the trained model is used (unknown `model`), on what `serving` says."""
    end: End = "value"
    """Whether days, cost and GPU-hours have to stay below their limits as predicted, or at their high end."""


RUN_LIMITS = ("days", "cost_usd", "gpu_hours")
"""Limits of the whole run, by the names that its totals have."""


SIZE_LIMITS = ("total_flop", "inference_per_token_flop", "inference_usd_per_million_tokens")
"""Limits that bound the size of a model alone."""


def limits_given(limits: SolveLimits) -> Mapping[str, float]:
    """The limits of the whole run that are given.

    Args:
        limits: what the job may take

    Returns:
        them by name
    """
    named = {name: getattr(limits, name) for name in RUN_LIMITS}
    return {name: limit for name, limit in named.items() if limit is not None}
