"""What does a caller tell of a step that was measured?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt

from service.estimator.noun import STRICT

StepSeconds = Annotated[float, Ge(1e-6), Lt(1e9)]
"""Seconds of one optimizer step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One configuration of the caller's own, as it was predicted and as it ran."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    predicted_seconds: StepSeconds
    """Seconds of its step by an estimate without measured_steps."""
    measured_seconds: StepSeconds
    """Seconds that its step took, median of many."""

    def __str__(self) -> str:
        """One cell of a table: `predicted:measured`, as the flat form takes it."""
        return f"{self.predicted_seconds}:{self.measured_seconds}"
