"""Which published steps may give constants, and which judge them? A question, and what was measured of it."""

from dataclasses import dataclass

from service.estimator.question import Question
from service.estimator.time.step import Operations


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One published step that the estimator can be asked about."""

    id: str
    """Its name in the table."""
    source_key: str
    """Its source."""
    left_out_with: str
    """Rows of one such name are left out of a fit together: those of a source, or of a model of experts."""
    question: Question
    """What the row asks."""
    stack: Operations
    """The stack that stands for its framework, and whose operations it runs."""
    measured_seconds: float
    """Seconds of its step."""
    waiting_fraction: float
    """Share of the predicted step in which a device waits."""
    is_apart: bool
    """It is counted apart: it gives no spread, and is judged beside the others."""
    gives_constants: bool = True
    """A fit may learn from it."""
