"""Best plans of published runs: the GPU-hours that they take beside those that the runs took."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

from service.calibration.scores import Residuals, run_spread
from service.calibration.tables import MeasuredRow, describes_main_run
from service.catalogue import Catalogue
from service.estimator import estimate
from service.estimator.answer import Interval
from service.estimator.complete import CompleteLayout
from service.estimator.question import Layout, Question
from service.estimator.run.totals import run_interval
from service.evaluation.totals import question_of_run
from service.planner.plans import question_of, search
from service.planner.space import Constraints


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """The best plan of one published run."""

    row: MeasuredRow
    published_gpu_hours: float
    gpu_hours: Interval
    """As predicted of the plan, with the interval of a given layout."""
    layout: CompleteLayout

    @property
    def residual_nats(self) -> float:
        """Logarithm of published over planned GPU-hours."""
        return log(self.published_gpu_hours / self.gpu_hours.value)


def planned_run(row: MeasuredRow, catalogue: Catalogue) -> PlannedRun | None:
    """The fastest plan of a main run on its GPUs, as its lab's software could run it; None where none fits."""
    question = question_of_run(row, catalogue).question
    *_, found = search(*_opened(question), 1)
    published = row.number_of("gpu_hours")
    if not found.best or not published:
        return None
    (best,) = found.best
    totals = estimate(question_of(question, best)).totals
    if totals is None:
        return None
    return PlannedRun(row=row, published_gpu_hours=published, gpu_hours=totals.gpu_hours, layout=best.layout)


def _opened(question: Question) -> tuple[Question, Constraints]:
    """A question with its layout, micro-batch and recompute left open, but for a schedule or modules that it names."""
    recompute, schedule = question.recipe.recompute, question.layout.schedule
    named: dict[str, tuple[Any, ...]] = {} if isinstance(recompute, str) else {"recompute": (recompute,)}
    named |= {} if schedule is None else {"schedule": (schedule,)}
    recipe = replace(question.recipe, micro_batch=1, recompute="none")
    return replace(question, layout=Layout(), recipe=recipe), Constraints(named)


def planned_runs(rows: Sequence[MeasuredRow], catalogue: Catalogue) -> list[PlannedRun]:
    """The best plans of all main runs for which one fits."""
    found = (planned_run(row, catalogue) for row in rows if describes_main_run(row))
    return [one for one in found if one is not None]


def planned_residuals(runs: Sequence[PlannedRun]) -> Residuals:
    """Residuals of planned runs, by source."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.row.text("source"), []).append(run.residual_nats)
    return found


def held_out_planned_interval(run: PlannedRun, runs: Sequence[PlannedRun]) -> Interval | None:
    """Interval of a planned run from the residuals of all other runs."""
    ends = run_spread(planned_residuals([one for one in runs if one is not run]))
    return None if ends is None else run_interval(run.gpu_hours, ends)
