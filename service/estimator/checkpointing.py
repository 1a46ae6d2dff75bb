"""How does the run keep checkpoints: how long does each stop training, and how often is one taken?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt

from service.estimator.names import IntervalRule
from service.estimator.noun import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """How checkpoints are taken, so that an interruption loses little."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    rule: IntervalRule | None = None
    """Which formula gives the time between checkpoints that wastes least; young where absent."""
    interval_seconds: Annotated[float, Ge(1), Lt(1e9)] | None = None
    """Time between checkpoints; what the rule gives where absent. Never below one step, nor below the time that an
    asynchronous file takes to write."""
    stall_seconds: Annotated[float, Ge(1e-3), Lt(1e6)] | None = None
    """Time that training stands still for one checkpoint; derived from write_bytes_per_s, else 30, where absent."""
    asynchronous: bool = True
    """Training goes on once the state is copied to host memory, and the file is written behind it."""
    write_bytes_per_s: Annotated[float, Ge(1e3), Lt(1e18)] | None = None
    """Rate at which the whole job writes to storage: it decides the stall of a checkpoint that is not asynchronous, and
    how often an asynchronous one can be taken."""
