"""What becomes of one row? Its prediction beside its figure, or the reason why there is none."""

from collections.abc import Iterable

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.estimator.answer import StageMemory
from service.workflows.accuracy.answers import Quantity
from service.workflows.accuracy.judged import Judged
from service.workflows.accuracy.predicted import Predicted, peak_interval, predict, stage_of, static_interval
from service.workflows.accuracy.sources import (
    MemoryClass,
    measured_peak_bytes,
    measured_static_bytes,
    memory_class_of,
    place_of,
    ran_out,
    refuse_unknown_words,
)
from service.workflows.accuracy.steps import judge_step


def judge(row: MeasuredRow, catalogue: Catalogue) -> tuple[Judged, ...]:
    """What becomes of a row: one entry for its step, or for its peak and what stays between steps if it reports that.

    Args:
        row: the row
        catalogue: the GPUs

    Returns:
        the entries, none of them left out whatever is wrong with the row
    """
    if row.form == "throughput":
        return (judge_step(row, catalogue),)
    said = _Said(row)
    try:
        refuse_unknown_words(row)
        predicted = predict(row, catalogue)
        stage = stage_of(predicted.memory, place_of(row))
    except NotExpressible as why:
        return tuple(said.judged(quantity, reason=_with_all_missing(row, str(why))) for quantity in said.quantities())
    return tuple(said.judged(quantity, predicted, stage) for quantity in said.quantities())


def judge_all(rows: Iterable[MeasuredRow], catalogue: Catalogue) -> tuple[Judged, ...]:
    """What becomes of every row of a table.

    Args:
        rows: the rows
        catalogue: the GPUs

    Returns:
        the entries, in the order of the rows
    """
    return tuple(judged for row in rows for judged in judge(row, catalogue))


class _Said:
    """What a row says of itself, whatever can be asked about it."""

    def __init__(self, row: MeasuredRow) -> None:
        self.row = row

    def quantities(self) -> tuple[Quantity, ...]:
        return ("peak", "static") if self._measured("static")[0] is not None else ("peak",)

    def judged(
        self, quantity: Quantity, predicted: Predicted | None = None, stage: StageMemory | None = None, reason: str = ""
    ) -> Judged:
        measured, unreadable = self._measured(quantity)
        interval = None
        memory_class: MemoryClass = "allocated" if quantity == "static" else memory_class_of(self.row)
        if predicted is not None and stage is not None:
            memory = predicted.memory
            peak = quantity == "peak"
            interval = peak_interval(memory, stage, memory_class) if peak else static_interval(memory, stage)
            if measured is None and not ran_out(self.row):
                reason = unreadable or "missing: peak_mem_reported"
        return Judged(
            row=self.row,
            quantity=quantity,
            figure_class=memory_class,
            is_moe=self.row.text("moe_experts") not in ("", "0"),
            is_told=not self.row.text("config_missing"),
            ran_out=ran_out(self.row),
            measured=measured,
            predicted=predicted,
            stage=stage,
            interval=interval,
            reason=reason,
        )

    def _measured(self, quantity: Quantity) -> tuple[float | None, str]:
        """The figure, or why it cannot be read."""
        try:
            found = measured_peak_bytes(self.row) if quantity == "peak" else measured_static_bytes(self.row)
        except NotExpressible as why:
            return None, str(why)
        return found, ""


def _with_all_missing(row: MeasuredRow, reason: str) -> str:
    """A reason that names one missing column, with all the others that the row lists."""
    listed = row.text("config_missing")
    first = reason.removeprefix("missing: ")
    return f"missing: {listed}" if reason != first and first in listed.split() else reason
