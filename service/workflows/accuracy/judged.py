"""What became of one figure of one row: its prediction beside it, or the reason why there is none."""

from dataclasses import dataclass

from service.calibration.scores import Comparison
from service.calibration.tables import MeasuredRow
from service.estimator.answer import Interval, StageMemory
from service.workflows.accuracy.answers import Quantity
from service.workflows.accuracy.predicted import Predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One figure of one row, and what the estimator says of it: bytes, or seconds of a step."""

    row: MeasuredRow
    """The row."""
    quantity: Quantity
    """Peak, what stays between steps, or the time of a step."""
    figure_class: str
    """Which peak; for a step, its class of models, GPUs and stacks."""
    is_moe: bool
    """A mixture of experts."""
    is_told: bool
    """Its configuration is told in full."""
    ran_out: bool = False
    """It ran out of memory."""
    measured: float | None
    """The figure; None where the row has none."""
    predicted: Predicted | None = None
    """The estimate; None where the row cannot be asked."""
    stage: StageMemory | None = None
    """The stage whose memory was measured."""
    interval: Interval | None = None
    """What is predicted of the figure."""
    reason: str = ""
    """Why there is no comparison; empty where there is one, or the row ran out of memory."""

    @property
    def stack(self) -> str:
        """The training stack that stands for the row's framework; empty where the row cannot be asked."""
        return "" if self.predicted is None else self.predicted.stack

    @property
    def comparison(self) -> Comparison | None:
        """Prediction beside figure; None where one of them is missing, or the job never ran."""
        if self.interval is None or self.measured is None or self.ran_out:
            return None
        return Comparison(self.measured, self.interval.low, self.interval.value, self.interval.high)
