"""What is predicted of a published run, and how wide would its interval be had its source never been published?"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from service.calibration.scores import Residuals, run_spread
from service.calibration.tables import MeasuredRow, NotExpressible, describes_main_run
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator import estimate
from service.estimator.answer import Interval
from service.estimator.run.totals import run_interval, scaled
from service.workflows.accuracy.asking import reason_of
from service.workflows.accuracy.totals_asking import AskedRun, run_question


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """One published run, and what is predicted of it."""

    row: MeasuredRow
    """The row."""
    published_gpu_hours: float | None
    """GPU-hours as published; None where they are not told."""
    asked: AskedRun | None = None
    """The question; None where the row cannot be put as one."""
    gpu_hours: Interval | None = None
    """GPU-hours as predicted; None where the row cannot be asked."""
    by_steps_gpu_hours: Interval | None = None
    """The same, as wide as its steps alone."""
    reason: str = ""
    """Why there is no prediction; empty where there is one."""

    @property
    def source(self) -> str:
        """Where it was published."""
        return self.row.text("source")


def judged_run(row: MeasuredRow, catalogue: Catalogue) -> JudgedRun:
    """What is predicted of a published run.

    Args:
        row: the run
        catalogue: models and GPUs

    Returns:
        the prediction, or why there is none
    """
    published, asked = row.number_of("gpu_hours"), None
    try:
        asked = run_question(row, catalogue)
        found = estimate(asked.question)
    except NotExpressible as why:
        return JudgedRun(row=row, published_gpu_hours=published, reason=str(why))
    except Refused as refused:
        return JudgedRun(row=row, published_gpu_hours=published, asked=asked, reason=reason_of(refused))
    hours = None if found.totals is None else found.totals.gpu_hours
    step = found.step.step_seconds
    return JudgedRun(
        row=row,
        published_gpu_hours=published,
        asked=asked,
        gpu_hours=hours,
        by_steps_gpu_hours=None if hours is None else scaled(step, hours.value / step.value),
    )


def run_residuals(runs: Sequence[JudgedRun]) -> Residuals:
    """How far published main runs lie from what is predicted of them.

    Args:
        runs: the runs

    Returns:
        ln(published / predicted) by source
    """
    found: dict[str, list[float]] = {}
    for run in runs:
        if describes_main_run(run.row) and run.gpu_hours and run.published_gpu_hours:
            found.setdefault(run.source, []).append(log(run.published_gpu_hours / run.gpu_hours.value))
    return found


def held_out_interval(run: JudgedRun, residuals: Residuals) -> Interval | None:
    """The interval of a run by what all other sources say of whole runs.

    Args:
        run: the run
        residuals: those of every source

    Returns:
        the interval; None where nothing is predicted, or nobody else says anything
    """
    ends = run_spread({source: own for source, own in residuals.items() if source != run.source})
    return None if run.by_steps_gpu_hours is None or ends is None else run_interval(run.by_steps_gpu_hours, ends)
