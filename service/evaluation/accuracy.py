"""Accuracy of predictions on a table of measurements: groups by source and class, verdicts, worst rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from statistics import fmean
from typing import Any

from service.answers import accuracy
from service.answers.estimates import Versions
from service.calibration.kernels import scored_products, shipped_products
from service.calibration.observations import CountedPeak, counted_peaks, live_step_bytes
from service.calibration.scores import Comparison, constants_read_off, errors_of, left_out_fraction, score
from service.calibration.tables import MeasuredRow
from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Unreachable
from service.estimator import FORMULAS_VERSION
from service.estimator.answer import MemoryLine, StageMemory
from service.estimator.memory.device import class_of
from service.estimator.question import Cluster, Gpu, Layout, Question, Recipe, Software
from service.estimator.resolve import resolve
from service.evaluation.mlperf import benchmark_runs
from service.evaluation.scoreboard import CLASSES, EVERY, StepScorer, points_of, scoreboard_of
from service.evaluation.scoring import Evaluation, evaluate_rows, figure_of, verdicts_of
from service.store import Engine
from service.store.engine import open_engine
from service.store.keys import Caller
from service.store.measurements import Measured, each_measurement
from service.units import BYTES, in_units
from service.validation.devices import is_possible, slug_of
from service.validation.reading import to_bytes

GPU = "h100-sxm5-80gb"
"""GPU of the questions; live tensors do not depend on it."""


@cache
def evaluated_peaks() -> tuple[accuracy.PeakRow, ...]:
    """Every shipped counted peak and its prediction."""
    return tuple(_evaluated(one) for one in counted_peaks())


def _evaluated(counted: CountedPeak) -> accuracy.PeakRow:
    catalogue = shipped_catalogue()
    names: dict[str, Any] = {
        name: getattr(counted, name)
        for name in ("sequence_length", "micro_batch", "precision", "attention", "optimizer")
    }
    model = catalogue.models[counted.model].model
    if model is None:
        message = f"the catalogue describes no layers of {counted.model}"
        raise LookupError(message)
    question = Question(
        model=replace(model, num_hidden_layers=counted.layers),
        recipe=Recipe(**names, stack=Software(name="transformers", implementation="eager", cross_entropy="eager")),
        layout=Layout(),
        cluster=Cluster(gpu=GPU, gpus=1),
        gpu=catalogue.gpus[GPU].gpu,
    )
    predicted = live_step_bytes(resolve(question)).of_step(counted.step)
    return accuracy.PeakRow(
        model=counted.model,
        layers=counted.layers,
        step=counted.step,
        counted_bytes=counted.live_bytes_peak,
        predicted_bytes=predicted,
        error_fraction=predicted / counted.live_bytes_peak - 1,
        source=counted.source,
    )


@cache
def shipped_measured() -> accuracy.MeasuredAccuracy:
    """Accuracy on the measurements that ship with the service."""
    rows = evaluated_peaks()
    errors = [abs(row.error_fraction) for row in rows]
    return accuracy.MeasuredAccuracy(
        counted_peaks=accuracy.CountedPeaks(
            rows=rows,
            mape_fraction=fmean(errors) if errors else None,
            largest_fraction=max(errors, default=None),
        ),
        products=scored_products(shipped_products()),
        own=None,
    )


def own_groups(engine: Engine, caller: Caller, catalogue: Catalogue) -> tuple[accuracy.OwnGroup, ...]:
    """Accuracy on a caller's own measurements."""
    found: dict[tuple[Any, ...], _Tally] = {}
    for row in each_measurement(engine, caller.visible_owner):
        key = tuple(getattr(row, name) for name in _KEY)
        if key not in found:
            slug = slug_of(row, catalogue)
            found[key] = _Tally(gpu=None if slug is None else catalogue.gpus[slug].gpu)
        found[key].add(row)
    return tuple(tally.group(key) for key, tally in sorted(found.items(), key=lambda item: str(item[0])))


_KEY = ("device", "gpu", "probe", "quantity", "calibration")


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Running counts and errors of one group of measurements."""

    gpu: Gpu | None
    """GPU of the measurements; None if the catalogue does not have it."""
    measurements: int = 0
    quarantined: int = 0
    compared: list[Comparison] = field(default_factory=list)

    def add(self, row: Measured) -> None:
        if row.quarantined_at is not None or not is_possible(row, self.gpu):
            self.quarantined += 1
            return
        self.measurements += 1
        if row.predicted_value:
            predicted = row.predicted_value
            self.compared.append(Comparison(measured=row.value, low=predicted, value=predicted, high=predicted))

    def group(self, key: tuple[Any, ...]) -> accuracy.OwnGroup:
        errors, names = asdict(errors_of(self.compared)), {one.name for one in fields(accuracy.OwnGroup)}
        return accuracy.OwnGroup(
            **dict(zip(_KEY, key, strict=True)),
            measurements=self.measurements,
            quarantined=self.quarantined,
            **{name: value for name, value in errors.items() if name in names},
        )


LISTED_ROWS = 20

LARGEST_LINES = 3
SMALLEST_SCALE_BYTES = 4.0 * (1 << 30)
"""Smallest scale for ranking errors in bytes; without it tiny models would fill the list."""


def worst_rows(evaluations: Sequence[Evaluation]) -> tuple[accuracy.WorstRow, ...]:
    """The rows with the largest errors."""
    compared = [
        (one, comparison, one.stage)
        for one in evaluations
        if (comparison := one.comparison) is not None and one.stage is not None
    ]
    compared.sort(
        key=lambda row: (-abs(row[1].distance) / max(row[1].measured, SMALLEST_SCALE_BYTES), row[0].row.text("id"))
    )
    return tuple(
        accuracy.WorstRow(
            **_figures_of_row(one, comparison, "bytes"),
            quantity=one.quantity,
            memory_class=one.figure_class,
            lines=tuple(_largest_lines(stage)),
            reason=reason_of(one, comparison, stage),
        )
        for one, comparison, stage in compared[:LISTED_ROWS]
    )


def worst_steps(evaluations: Sequence[Evaluation]) -> tuple[accuracy.WorstStep, ...]:
    """The steps stated in full with the largest errors."""
    compared = [
        (one, comparison)
        for one in evaluations
        if one.quantity == "step" and one.is_complete and (comparison := one.comparison) is not None
    ]
    compared.sort(key=lambda step: (-abs(step[1].residual_fraction), step[0].row.text("id")))
    return tuple(_worst_step(*step) for step in compared[:LISTED_ROWS])


def _worst_step(evaluation: Evaluation, comparison: Comparison) -> accuracy.WorstStep:
    row, parts = evaluation.row, evaluation.predicted.estimate.step.parts if evaluation.predicted else ()
    details = [f"measured: {figure_of(row)}", *(evaluation.predicted.unmodelled if evaluation.predicted else ())]
    return accuracy.WorstStep(
        **_figures_of_row(evaluation, comparison, "seconds"),
        step_class=evaluation.figure_class,
        parts=tuple(sorted(parts, key=lambda part: -part.seconds)[:LARGEST_LINES]),
        reason="; ".join([*details, *((f"the source: {quality}",) if (quality := row.text("quality")) else ())]),
    )


def _figures_of_row(evaluation: Evaluation, comparison: Comparison, unit: str) -> dict[str, Any]:
    names = {name: evaluation.row.text(name) for name in ("id", "source_key", "source")}
    figures = {f"{name}_{unit}": getattr(comparison, name) for name in ("measured", "low", "value", "high")}
    return {**names, **figures, "error_fraction": comparison.error_fraction}


def _largest_lines(stage: StageMemory) -> list[MemoryLine]:
    return sorted(stage.lines, key=lambda line: -line.bytes)[:LARGEST_LINES]


def reason_of(evaluation: Evaluation, comparison: Comparison, stage: StageMemory) -> str:
    """Explanation of an error: its size, the largest lines, what the question leaves out."""
    distance = in_units(abs(comparison.distance), BYTES)
    lines = _largest_lines(stage)
    largest = ", ".join(f"{line.kind.replace('_', ' ')} {in_units(line.bytes, BYTES)}" for line in lines)
    parts = [
        f"{distance} too {'much' if comparison.distance > 0 else 'little'}",
        f"stage {stage.stage} of {len(evaluation.predicted.memory.stages) if evaluation.predicted else 1}: {largest}",
        *(evaluation.predicted.unmodelled if evaluation.predicted else ()),
        *((f"not told: {missing}",) if (missing := evaluation.row.text("config_missing")) else ()),
        *((f"the source: {quality}",) if (quality := evaluation.row.text("quality")) else ()),
    ]
    return "; ".join(parts)


NO_OWN = b'"own":null}}'
"""End of the JSON of an answer without own measurements: `own` is the last field of the last object."""

LARGE_FROM_BYTES: dict[accuracy.Quantity, float] = {"peak": 4.0 * (1 << 30), "static": 1e9}
"""Smallest large value; below it, workspaces of fixed size dominate."""


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Accuracy on some rows, and the points behind its held-out scores."""

    answer: accuracy.Accuracy
    points: tuple[accuracy.AccuracyPoint, ...]


def accuracy_of(rows: Iterable[MeasuredRow], catalogue: Catalogue) -> accuracy.Accuracy:
    """Accuracy on a table of measurements."""
    return scored_rows(evaluate_rows(rows, catalogue), catalogue).answer


def scored_rows(evaluations: Sequence[Evaluation], catalogue: Catalogue, *, with_runs: bool = False) -> ScoredRows:
    """Accuracy of evaluated rows, and their points; with the shipped runs of MLPerf Training where they are wanted."""
    groups: dict[Key, list[Evaluation]] = {}
    for one in evaluations:
        key = (one.quantity, one.row.text("source_key"), one.figure_class, one.is_moe)
        groups.setdefault(key, []).append(one)
    peaks = [one for one in evaluations if one.quantity == "peak"]
    residuals = _residuals_by_kind(evaluations)
    steps = StepScorer(evaluations)
    points = points_of(evaluations, steps)
    answer = accuracy.Accuracy(
        versions=Versions(formulas=FORMULAS_VERSION, catalogue=catalogue.revision, calibration=None),
        held_out=scoreboard_of(points, steps, benchmark_runs(steps.held_out, catalogue) if with_runs else None),
        groups=tuple(
            _group(own, key, steps, _left_out_fraction(residuals, own)) for key, own in sorted(groups.items())
        ),
        all=_group(peaks, ("peak", EVERY, EVERY, None), steps, None),
        verdicts=verdicts_of(peaks),
        rows_worst=worst_rows(evaluations),
        steps=tuple(
            _group(own, ("step", EVERY, name, None if name == EVERY else name == "MoE"), steps, None)
            for name, classes in CLASSES["step"].items()
            if (own := [one for one in evaluations if one.quantity == "step" and one.figure_class in classes])
        ),
        steps_worst=worst_steps(evaluations),
        measured=shipped_measured(),
    )
    return ScoredRows(answer, points)


def own_accuracy_json(database: str, catalogue: Catalogue, caller: Caller) -> bytes:
    """Accuracy on a caller's own measurements as JSON, on a connection of its own; null without the database."""
    engine = open_engine(database, makes_folder=False, connections=1)
    try:
        return to_bytes(own_groups(engine, caller, catalogue))
    except Unreachable:
        return b"null"
    finally:
        engine.dispose()


def with_own_accuracy(shipped: bytes, own: bytes) -> bytes:
    """The shipped accuracy with that on own measurements, both as JSON."""
    return shipped.removesuffix(NO_OWN) + NO_OWN.replace(b"null", own)


Key = tuple[accuracy.Quantity, str, str, bool | None]


def _group(evaluations: Sequence[Evaluation], key: Key, steps: StepScorer, left_out: float | None) -> accuracy.Group:
    quantity, source_key, figure_class, moe = key
    sources = {one.row.text("source_key") for one in evaluations if one.comparison is not None}
    constants = sorted({name for source in sources for name in constants_read_off(source, quantity, figure_class)})
    return accuracy.Group(
        **_sized(evaluations, quantity),
        quantity=quantity,
        source_key=source_key,
        memory_class=figure_class,
        moe=moe,
        in_sample=bool(constants),
        constants=tuple(constants),
        coverage80_left_out_fraction=left_out,
        full_config=accuracy.Sized(**_sized([one for one in evaluations if one.is_complete], quantity)),
        step=steps.scores_of(evaluations),
    )


Kind = tuple[str, str, str]
"""Pool of comparable errors: the quantity, and the class of stack and model."""

ResidualsByKind = dict[Kind, dict[str, list[float]]]


def _kind(one: Evaluation) -> Kind:
    return one.quantity, *class_of(one.stack, is_sparse=one.is_moe)


def _residuals_by_kind(evaluations: Sequence[Evaluation]) -> ResidualsByKind:
    found: ResidualsByKind = {}
    for one in evaluations:
        if one.quantity != "step" and (comparison := one.comparison) is not None:
            sources = found.setdefault(_kind(one), {})
            sources.setdefault(one.row.text("source_key"), []).append(comparison.residual_fraction)
    return found


def _left_out_fraction(residuals: ResidualsByKind, own: Sequence[Evaluation]) -> float | None:
    """Share of a group's bytes inside the interval from the other sources of its kind; None for steps."""
    pooled: dict[str, list[float]] = {}
    for kind in {_kind(one) for one in own if one.comparison is not None}:
        for source, found in residuals.get(kind, {}).items():
            pooled.setdefault(source, []).extend(found)
    return left_out_fraction(pooled, own[0].row.text("source_key"))


def _sized(evaluations: Sequence[Evaluation], quantity: accuracy.Quantity) -> dict[str, Any]:
    large_from = LARGE_FROM_BYTES.get(quantity)
    small = [one for one in evaluations if large_from and one.measured is not None and one.measured < large_from]
    large = [one for one in evaluations if not large_from or one.measured is None or one.measured >= large_from]
    return {
        **_figures(evaluations),
        "large_from_bytes": large_from,
        "large": accuracy.Figures(**_figures(large)),
        "small": accuracy.Figures(**_figures(small)),
    }


def _figures(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    compared = [comparison for one in evaluations if (comparison := one.comparison) is not None]
    are_steps = any(one.quantity == "step" for one in evaluations)
    no_bytes = {"median_bytes": None, "p95_bytes": None}
    reasons = Counter(one.reason for one in evaluations if one.reason and not one.ran_out)
    return {
        "rows": len(evaluations),
        **(asdict(errors_of(compared)) | no_bytes if are_steps else asdict(score(compared))),
        "ran_out": sum(one.ran_out for one in evaluations),
        "not_expressible": dict(sorted(reasons.items())),
    }
