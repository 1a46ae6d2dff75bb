"""How near do predicted GPU-hours come to those of published runs, and how many lie inside the predicted interval?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import ClassVar

from service.calibration.measured_rows import MeasuredRow, NotExpressible
from service.calibration.totals_rows import describes_main_run, shipped_totals
from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Refused
from service.estimator import estimate
from service.estimator.interval import Interval
from service.workflows.accuracy.asking import reason_of
from service.workflows.accuracy.totals_asking import AskedRun, run_question
from service.workflows.estimates import SPOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsRow:
    """One published run beside its prediction."""

    __pydantic_config__: ClassVar[dict[str, object]] = SPOKEN

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
    """GPU-hours as published; null where they are not told."""
    gpu_hours: Interval | None
    """GPU-hours as predicted, goodput counted; null where the row cannot be asked."""
    error_fraction: float | None
    """Signed error, predicted / published - 1; null where there is nothing to compare."""
    is_inside: bool | None
    """Whether the published GPU-hours lie inside the predicted interval; null where there is nothing to compare."""
    assumed: tuple[str, ...]
    """Columns that the row leaves empty, which a rule filled."""
    layout: str
    """The layout that was asked about; empty where none was."""
    reason: str
    """Why there is no comparison; empty where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsGroup:
    """What predictions of some published runs amount to."""

    __pydantic_config__: ClassVar[dict[str, object]] = SPOKEN

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
    mape_fraction: float | None
    """Mean of the absolute errors; null where nothing was compared."""
    bias_fraction: float | None
    """Mean of the signed errors: positive where too many hours are predicted."""
    not_expressible: Mapping[str, int]
    """Rows that were not compared, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsAccuracy:
    """How near predicted GPU-hours come to those of published runs."""

    __pydantic_config__: ClassVar[dict[str, object]] = SPOKEN

    main_runs: TotalsGroup
    """Rows that describe one main run: the ones that count."""
    beside: TotalsGroup
    """All other rows, printed beside and counted apart."""
    rows: tuple[TotalsRow, ...]
    """Every row, main runs first."""


def totals_accuracy_of(rows: Sequence[MeasuredRow], catalogue: Catalogue) -> TotalsAccuracy:
    """How near predictions come to some published runs.

    Args:
        rows: the runs
        catalogue: models and GPUs

    Returns:
        figures of main runs and of the others, and every row
    """
    judged = [_judged(row, catalogue) for row in rows]
    main = [one for one in judged if one.describes_main_run]
    others = [one for one in judged if not one.describes_main_run]
    return TotalsAccuracy(main_runs=_group("main runs", main), beside=_group("beside", others), rows=(*main, *others))


@cache
def totals_accuracy() -> TotalsAccuracy:
    """How near predictions come to the whole runs that the package ships.

    Returns:
        the answer, computed once a process
    """
    return totals_accuracy_of(shipped_totals(), shipped_catalogue())


def _judged(row: MeasuredRow, catalogue: Catalogue) -> TotalsRow:
    asked: AskedRun | None = None
    found: Interval | None = None
    published, reason = None, ""
    try:
        published = row.number_of("gpu_hours")
        asked = run_question(row, catalogue)
        totals = estimate(asked.question).totals
        found = None if totals is None else totals.gpu_hours
    except NotExpressible as why:
        reason = str(why)
    except Refused as refused:
        reason = reason_of(refused)
    compared = published is not None and found is not None
    return TotalsRow(
        id=row.text("id"),
        model=row.text("model"),
        source=row.text("source"),
        describes_main_run=describes_main_run(row),
        decided=row.text("reason"),
        published_gpu_hours=published,
        gpu_hours=found,
        error_fraction=found.value / published - 1 if found and published else None,
        is_inside=found.low <= published <= found.high if found and published else None,
        assumed=() if asked is None else asked.assumed,
        layout="" if asked is None else _layout_said(asked),
        reason="" if compared else reason,
    )


def _layout_said(asked: AskedRun) -> str:
    """The layout in words: GPUs, the degrees above one, micro-batch, recompute."""
    layout, recipe = asked.question.layout, asked.question.recipe
    degrees = [f"{name} {degree}" for name in ("tensor", "pipeline", "context", "expert")
               if (degree := getattr(layout, name)) > 1]  # fmt: skip
    again = recipe.recompute if isinstance(recipe.recompute, str) else recipe.recompute.granularity
    named = [f"micro-batch {recipe.micro_batch}", f"recompute {again}"]
    return ", ".join([f"{asked.question.cluster.gpus} x {asked.question.gpu.slug}", *degrees, *named])


def _group(name: str, rows: Sequence[TotalsRow]) -> TotalsGroup:
    errors = [one.error_fraction for one in rows if one.error_fraction is not None]
    inside = sum(one.is_inside is True for one in rows)
    return TotalsGroup(
        name=name,
        rows=len(rows),
        scored=len(errors),
        inside=inside,
        inside_fraction=inside / len(errors) if errors else None,
        mape_fraction=fmean(map(abs, errors)) if errors else None,
        bias_fraction=fmean(errors) if errors else None,
        not_expressible=dict(sorted(Counter(one.reason for one in rows if one.reason).items())),
    )
