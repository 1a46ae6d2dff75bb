"""Predicted GPU-hours against those of published runs, and the share inside the predicted interval."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from statistics import fmean
from typing import ClassVar

from service.calibration.scores import Residuals, run_spread
from service.calibration.tables import MeasuredRow, NotExpressible, describes_main_run, shipped_totals
from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Refused
from service.estimator import estimate
from service.estimator.answer import Interval
from service.estimator.question import DESCRIBED
from service.estimator.run.totals import run_interval, scaled
from service.evaluation.questions import reason_of
from service.evaluation.run_questions import RunQuestion, question_of_run
from service.validation.serialization import to_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedRun:
    """One published run and its prediction."""

    row: MeasuredRow
    published_gpu_hours: float | None
    """None if not published."""
    run_question: RunQuestion | None = None
    """None if no question expresses the row."""
    gpu_hours: Interval | None = None
    """Predicted GPU-hours; None without a question."""
    by_steps_gpu_hours: Interval | None = None
    """The same, with the relative interval of its step alone."""
    reason: str = ""
    """Why there is no prediction; empty if there is one."""

    @property
    def source(self) -> str:
        """Publication of the run."""
        return self.row.text("source")


def evaluate_run(row: MeasuredRow, catalogue: Catalogue) -> EvaluatedRun:
    """Prediction of a published run."""
    published, run_question = row.number_of("gpu_hours"), None
    try:
        run_question = question_of_run(row, catalogue)
        found = estimate(run_question.question)
    except NotExpressible as why:
        return EvaluatedRun(row=row, published_gpu_hours=published, reason=str(why))
    except Refused as refused:
        return EvaluatedRun(
            row=row, published_gpu_hours=published, run_question=run_question, reason=reason_of(refused)
        )
    hours = None if found.totals is None else found.totals.gpu_hours
    step = found.step.step_seconds
    return EvaluatedRun(
        row=row,
        published_gpu_hours=published,
        run_question=run_question,
        gpu_hours=hours,
        by_steps_gpu_hours=None if hours is None else scaled(step, hours.value / step.value),
    )


def run_residuals(runs: Sequence[EvaluatedRun]) -> Residuals:
    """Residuals of published main runs, by source."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if describes_main_run(run.row) and run.gpu_hours and run.published_gpu_hours:
            found.setdefault(run.source, []).append(log(run.published_gpu_hours / run.gpu_hours.value))
    return found


def held_out_interval(run: EvaluatedRun, residuals: Residuals) -> Interval | None:
    """Interval of a run from the residuals of all other sources."""
    ends = run_spread({source: own for source, own in residuals.items() if source != run.source})
    return None if run.by_steps_gpu_hours is None or ends is None else run_interval(run.by_steps_gpu_hours, ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsRow:
    """One published run beside its prediction."""

    __pydantic_config__: ClassVar[dict[str, object]] = DESCRIBED

    id: str
    """Its name in the table."""
    model: str
    """The model that it trained."""
    source: str
    """Where it was published."""
    describes_main_run: bool
    """Whether its GPU-hours are those of one pre-training run."""
    decided: str
    """Why that was decided, before anything was predicted."""
    published_gpu_hours: float | None
    """GPU-hours as published; null if not published."""
    gpu_hours: Interval | None
    """GPU-hours as predicted, goodput counted; null where the row cannot be asked."""
    held_out_gpu_hours: Interval | None
    """The same prediction, as wide as all other sources ask for; null where there is no other."""
    error_fraction: float | None
    """Signed error, predicted / published - 1; null where there is nothing to compare."""
    is_inside: bool | None
    """Whether the published GPU-hours lie inside the predicted interval; null where there is nothing to compare."""
    is_inside_held_out: bool | None
    """Whether they lie inside the interval that never saw their source; null where there is nothing to compare."""
    assumed: tuple[str, ...]
    """Columns that the row leaves empty, which a rule filled."""
    layout: str
    """The layout that was asked about; empty where none was."""
    reason: str
    """Why there is no comparison; empty where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsGroup:
    """What predictions of some published runs amount to."""

    __pydantic_config__: ClassVar[dict[str, object]] = DESCRIBED

    name: str
    """main runs, or beside them: rows whose hours are not known to be those of one run."""
    rows: int
    """Rows in all."""
    scored: int
    """Rows whose prediction was compared."""
    inside: int
    """Rows whose published GPU-hours lie inside the predicted interval."""
    inside_fraction: float | None
    """Their share of those compared; null where nothing was."""
    held_out_inside: int
    """Rows whose published GPU-hours lie inside the interval that never saw their source."""
    held_out_inside_fraction: float | None
    """Their share of those compared; null where nothing was."""
    mape_fraction: float | None
    """Mean of the absolute errors; null where nothing was compared."""
    bias_fraction: float | None
    """Mean of the signed errors: positive where too many hours are predicted."""
    not_expressible: Mapping[str, int]
    """Rows that were not compared, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsAccuracy:
    """How near predicted GPU-hours come to those of published runs."""

    __pydantic_config__: ClassVar[dict[str, object]] = DESCRIBED

    main_runs: TotalsGroup
    """Rows that describe one main run: the ones that count."""
    beside: TotalsGroup
    """All other rows, printed beside and counted apart."""
    rows: tuple[TotalsRow, ...]
    """Every row, main runs first."""


def totals_accuracy_of(rows: Sequence[MeasuredRow], catalogue: Catalogue) -> TotalsAccuracy:
    """Accuracy on some published runs."""
    runs = [evaluate_run(row, catalogue) for row in rows]
    residuals = run_residuals(runs)
    compared = [_row(run, held_out_interval(run, residuals)) for run in runs]
    main = [one for one in compared if one.describes_main_run]
    others = [one for one in compared if not one.describes_main_run]
    return TotalsAccuracy(main_runs=_group("main runs", main), beside=_group("beside", others), rows=(*main, *others))


@cache
def totals_accuracy() -> TotalsAccuracy:
    """Accuracy on the shipped runs."""
    return totals_accuracy_of(shipped_totals(), shipped_catalogue())


def totals_accuracy_json() -> bytes:
    """The same as JSON."""
    return to_bytes(totals_accuracy())


def _row(run: EvaluatedRun, held_out: Interval | None) -> TotalsRow:
    published, found = run.published_gpu_hours, run.gpu_hours
    return TotalsRow(
        id=run.row.text("id"),
        model=run.row.text("model"),
        source=run.source,
        describes_main_run=describes_main_run(run.row),
        decided=run.row.text("reason"),
        published_gpu_hours=published,
        gpu_hours=found,
        held_out_gpu_hours=held_out,
        error_fraction=found.value / published - 1 if found and published else None,
        is_inside=_is_inside(published, found),
        is_inside_held_out=_is_inside(published, held_out),
        assumed=() if run.run_question is None else run.run_question.assumed,
        layout="" if run.run_question is None else _layout_summary(run.run_question),
        reason=run.reason,
    )


def _is_inside(published: float | None, interval: Interval | None) -> bool | None:
    return interval.low <= published <= interval.high if interval and published else None


def _layout_summary(run_question: RunQuestion) -> str:
    """The layout in words: GPUs, the degrees above one, micro-batch, recompute."""
    layout, recipe = run_question.question.layout, run_question.question.recipe
    degrees = [f"{name} {degree}" for name in ("tensor", "pipeline", "context", "expert")
               if (degree := getattr(layout, name)) > 1]  # fmt: skip
    again = recipe.recompute if isinstance(recipe.recompute, str) else recipe.recompute.granularity
    named = [f"micro-batch {recipe.micro_batch}", f"recompute {again}"]
    return ", ".join([f"{run_question.question.cluster.gpus} x {run_question.question.gpu.slug}", *degrees, *named])


def _group(name: str, rows: Sequence[TotalsRow]) -> TotalsGroup:
    errors = [one.error_fraction for one in rows if one.error_fraction is not None]
    inside = sum(one.is_inside is True for one in rows)
    held_out = sum(one.is_inside_held_out is True for one in rows)
    return TotalsGroup(
        name=name,
        rows=len(rows),
        scored=len(errors),
        inside=inside,
        inside_fraction=inside / len(errors) if errors else None,
        held_out_inside=held_out,
        held_out_inside_fraction=held_out / len(errors) if errors else None,
        mape_fraction=fmean(map(abs, errors)) if errors else None,
        bias_fraction=fmean(errors) if errors else None,
        not_expressible=dict(sorted(Counter(one.reason for one in rows if one.reason).items())),
    )
