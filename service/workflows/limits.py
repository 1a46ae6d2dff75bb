"""What may a run take at most? A deadline and a budget beside the question of a check."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Lt

from service.estimator.noun import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the run may take at most."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    days: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """Wall time of the whole run."""
    cost_usd: Annotated[float, Ge(0), Lt(1e15)] | None = None
    """Cost of the whole run."""
