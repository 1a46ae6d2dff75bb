"""Scoreboard: published figures beside predictions that never saw their source, by class of question and by source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from math import exp, expm1, log
from statistics import fmean, median
from typing import get_args

from service.answers.accuracy import AccuracyPoint, BenchmarkRuns, HeldOutScore, OtherMethod, Scoreboard, StepScores
from service.calibration.scores import Comparison, RelativeErrors, constants_read_off, errors_of, spread_fraction
from service.calibration.steps import (
    PublishedStep,
    StepRow,
    constant_utilisation_seconds,
    held_out_steps,
    shipped_held_out,
)
from service.calibration.tables import IMAGE_HOST, THROUGHPUT, MeasuredRow, NotExpressible, shipped_rows, shipped_table
from service.estimator.memory.device import class_of
from service.estimator.question import Question
from service.estimator.time.step import StepClass
from service.evaluation.recipes import completed
from service.evaluation.scoring import APART, Evaluation, known_differences, step_row_of

EVERY = "all"
"""Source and class of the scores of all rows of a quantity."""

DENSE = "dense, fitted GPU"
"""Class of the steps of dense models on GPUs of fitted generations, whatever the stack."""

STEP_CLASSES: dict[str, tuple[StepClass, ...]] = {
    DENSE: ("known stack", "other stack"),
    "new GPU": ("new GPU",),
    "old GPU": ("old GPU",),
    "MoE": ("MoE", "MoE, dispatcher unknown"),
    EVERY: get_args(StepClass),
}
"""Classes that are summarised over all sources; none has the steps that are scored apart."""

CLASSES: dict[str, dict[str, tuple[str, ...]]] = {
    "step": {**STEP_CLASSES, APART: (APART,)},
    "peak": {
        **{name: (name,) for name in ("allocated", "reserved", "device")},
        EVERY: ("allocated", "reserved", "device"),
    },
}
"""Classes of each quantity that are scored over all sources."""

LISTED_POINTS = 20

OTHER_TOOLS = "other_tools"
"""Table of what other tools predict, written by `.ci/proof tools`: llm-analysis at the half of the peak that its
constants call usual, and Calculon with the systems that it ships."""

Seconds = Mapping[str, float]
"""Seconds of a step by the name of its row."""


class StepScorer:
    """Held-out predictions and other methods' predictions of evaluated steps, by row."""

    def __init__(self, evaluations: Sequence[Evaluation]) -> None:
        scored = [(one, row) for one in evaluations if (row := step_row_of(one)) is not None]
        shipped = {row.id for one, row in scored if _is_shipped(one.row)}
        whole = shipped_held_out()
        known, withheld = (
            {name: found for name, found in seconds.items() if name in shipped}
            for seconds in (whole.predicted_seconds, whole.withheld_seconds)
        )
        self.held_out = {one.row.id: one for one in held_out_steps([row for _, row in scored], known, withheld)}
        self.ours = {name: one.comparison for name, one in self.held_out.items()}
        """Predictions that never saw their source: by other constants, or of a source that gave the served none."""
        for one, row in scored:
            if row.id not in shipped and not constants_read_off(row.source_key, "step") and one.comparison is not None:
                self.ours[row.id] = one.comparison
        self._measured = {row.id: row.measured_seconds for _, row in scored}
        self._others: dict[str, Seconds] = {
            "constant MFU": _baseline(scored, counts_attention=True),
            "6PD": _baseline(scored, counts_attention=False),
            **_other_tools({row.id: question_digest(row.question) for _, row in scored if row.id in shipped}),
        }

    def scores_of(self, group: Sequence[Evaluation]) -> StepScores | None:
        """Scores of a group's rows stated in full."""
        ids = [row.id for one in group if (row := step_row_of(one)) is not None]
        if not ids:
            return None
        held_out = [self.held_out[name] for name in ids if name in self.held_out]
        spreads = [one.spread_fraction for one in held_out if one.spread_fraction is not None]
        inside = [float(one.comparison.is_covered) for one in held_out if one.spread_fraction is not None]
        errors = errors_of([one.comparison for one in held_out])
        constant_mfu, six_pd = (_without_interval(self._compared(name, ids)) for name in ("constant MFU", "6PD"))
        return StepScores(
            held_out=replace(errors, coverage80_fraction=fmean(inside) if inside else None),
            half_width_fraction=expm1(median(spreads)) if spreads else None,
            held_out_classes=tuple(sorted({one.step_class for one in held_out})),
            constant_mfu=constant_mfu,
            six_pd=six_pd,
        )

    def others_of(self, ids: Sequence[str]) -> tuple[OtherMethod, ...]:
        """Scores of the other methods on some rows, each beside ours on the rows that it predicts."""
        scores = []
        for name in self._others:
            theirs = {one: self._compared(name, [one]) for one in ids}
            both = [one for one in ids if theirs[one] and one in self.ours]
            if both:
                errors = _without_interval([found for one in both for found in theirs[one]])
                ours = errors_of([self.ours[one] for one in both]).mape_fraction
                scores.append(OtherMethod(name=name, ours_mape_fraction=ours, **asdict(errors)))
        return tuple(scores)

    def _compared(self, name: str, ids: Sequence[str]) -> list[Comparison]:
        seconds = self._others[name]
        return [Comparison(self._measured[one], *[seconds[one]] * 3) for one in ids if one in seconds]


def question_digest(question: Question) -> str:
    """Digest of what other tools read of a question."""
    model, recipe, layout = question.model, question.recipe, question.layout
    rule = recipe.recompute
    recompute = rule if isinstance(rule, str) else (rule.granularity, rule.modules, rule.layers)
    read = (
        *(model.num_hidden_layers, model.hidden_size, model.num_attention_heads, model.num_key_value_heads),
        *(model.intermediate_size, model.vocab_size, model.gated_mlp, question.gpu.slug, question.cluster.gpus),
        *(recipe.sequence_length, recipe.micro_batch, recipe.global_batch, recipe.precision, recompute),
        *(layout.data, layout.tensor, layout.pipeline, layout.virtual_pipeline, layout.context, layout.zero_stage),
        *(layout.sequence_parallel, recipe.attention == "eager"),
    )
    return sha256(repr(read).encode()).hexdigest()[:8]


def _other_tools(asked: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Seconds that other tools predict, by the tool and its version, of rows that still ask what they were asked."""
    found: dict[str, dict[str, float]] = {}
    for row in shipped_table(OTHER_TOOLS):
        if asked.get(row["id"]) == row["question"]:
            found.setdefault(row["tool"], {})[row["id"]] = float(row["step_seconds"])
    return found


def _is_shipped(row: MeasuredRow) -> bool:
    """Whether a completed row equals a shipped row in every used column; only these have held-out predictions."""
    found = _shipped().get(row.text("id"))
    return found is not None and all(
        IMAGE_HOST.sub("", row.text(column)) == found.text(column) for column in THROUGHPUT.used
    )


@cache
def _shipped() -> dict[str, MeasuredRow]:
    return {row.text("id"): completed(row) for row in shipped_rows("throughput")}


def _without_interval(comparisons: Sequence[Comparison]) -> RelativeErrors:
    return replace(errors_of(comparisons), coverage80_fraction=None)


def _baseline(scored: Sequence[tuple[Evaluation, StepRow]], *, counts_attention: bool) -> Seconds:
    """Baseline predictions by row: one utilisation of each GPU, on causal FLOP or on 6 N D."""
    steps = [_published_step(one, row, counts_attention=counts_attention) for one, row in scored]
    return dict(zip((row.id for _, row in scored), constant_utilisation_seconds(steps), strict=True))


def _published_step(one: Evaluation, row: StepRow, *, counts_attention: bool) -> PublishedStep:
    if one.predicted is None:
        raise NotExpressible("the step has no prediction to compare with")
    found = one.predicted.estimate
    six_n = found.flop.conventions.six_n * found.flop.per_step_tokens
    return PublishedStep(
        left_out_with=row.left_out_with,
        gpu=row.question.gpu.slug,
        work_flop=float(found.flop.per_step_flop if counts_attention else six_n),
        peak_flop_per_s=found.step.peak_flop_per_s * found.resolved.cluster.gpus,
        measured_seconds=row.measured_seconds,
        is_scored_apart=row.is_scored_apart,
        is_moe=one.is_moe,
    )


def points_of(evaluations: Sequence[Evaluation], steps: StepScorer) -> tuple[AccuracyPoint, ...]:
    """Every row stated in full beside its held-out prediction: steps, then peaks of sources that gave no constant."""
    points = []
    for one in evaluations:
        compared = steps.ours.get(one.row.text("id"))
        if one.quantity == "step" and compared is not None and step_row_of(one) is not None:
            has_interval = compared.low < compared.value
            points.append(point_of(one, compared, (compared.low, compared.high) if has_interval else None))
    return (*points, *_peaks(evaluations))


def _peaks(evaluations: Sequence[Evaluation]) -> list[AccuracyPoint]:
    """Peaks of sources that gave no constant, in intervals as wide as all other sources of their kind ask for."""
    scored = [
        (one, comparison, (*class_of(one.stack, is_sparse=one.is_moe),))
        for one in evaluations
        if one.quantity == "peak" and one.is_complete and (comparison := one.comparison) is not None
    ]
    pools: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for one, comparison, kind in scored:
        pools.setdefault(kind, {}).setdefault(one.row.text("source_key"), []).append(comparison.residual_fraction)
    points = []
    for one, comparison, kind in scored:
        source = one.row.text("source_key")
        if not constants_read_off(source):
            spread = spread_fraction({name: own for name, own in pools[kind].items() if name != source})
            points.append(_point(one, comparison, None if spread is None else exp(spread)))
    return points


def _point(one: Evaluation, comparison: Comparison, factor: float | None) -> AccuracyPoint:
    """A row's point, with the interval of a factor around its prediction."""
    value = comparison.value
    return point_of(one, comparison, None if factor is None else (value / factor, value * factor))


def point_of(one: Evaluation, comparison: Comparison, interval: tuple[float, float] | None) -> AccuracyPoint:
    """A row's figure beside a prediction and its interval."""
    name, measured, value = one.row.text("id"), comparison.measured, comparison.value
    low, high = interval or (None, None)
    return AccuracyPoint(
        id=name,
        source_key=one.row.text("source_key"),
        quantity="step" if one.quantity == "step" else "peak",
        memory_class=one.figure_class,
        unit="seconds" if one.quantity == "step" else "bytes",
        measured=measured,
        low=low,
        predicted=value,
        high=high,
        error_fraction=comparison.error_fraction,
        is_inside=None if low is None or high is None else low <= measured <= high,
        known_difference=known_differences().get(name),
    )


def scoreboard_of(points: Sequence[AccuracyPoint], steps: StepScorer, mlperf: BenchmarkRuns | None) -> Scoreboard:
    """The scores of some points, by class and by source, the points farthest off, and whole runs."""
    classes = [
        _score(own, (quantity, name, EVERY), steps.others_of)
        for quantity, names in CLASSES.items()
        for name, members in names.items()
        if (own := [one for one in points if one.quantity == quantity and one.memory_class in members])
    ]
    groups: dict[tuple[str, str, str], list[AccuracyPoint]] = {}
    for one in points:
        groups.setdefault((one.quantity, one.memory_class, one.source_key), []).append(one)
    keys = sorted(groups, key=lambda key: (-"peak step".index(key[0]), key[2], key[1]))
    worst = sorted(points, key=lambda one: (-abs(log(one.predicted / one.measured)), one.id))
    return Scoreboard(
        classes=tuple(classes),
        sources=tuple(_score(groups[key], key, steps.others_of) for key in keys),
        worst=tuple(worst[:LISTED_POINTS]),
        mlperf=mlperf,
    )


def _score(
    points: Sequence[AccuracyPoint],
    key: tuple[str, str, str],
    others_of: Callable[[Sequence[str]], tuple[OtherMethod, ...]],
) -> HeldOutScore:
    quantity, name, source_key = key
    return HeldOutScore(
        quantity="step" if quantity == "step" else "peak",
        memory_class=name,
        source_key=source_key,
        half_width_fraction=_half_width(points),
        others=others_of([one.id for one in points]) if quantity == "step" else (),
        **asdict(point_errors(points)),
    )


def point_errors(points: Sequence[AccuracyPoint]) -> RelativeErrors:
    """The errors of some points, and how many with an interval lie inside."""
    inside = [float(one.is_inside) for one in points if one.is_inside is not None]
    errors = errors_of([Comparison(one.measured, *[one.predicted] * 3) for one in points])
    return replace(errors, coverage80_fraction=fmean(inside) if inside else None)


def _half_width(points: Sequence[AccuracyPoint]) -> float | None:
    widths = [one.high / one.predicted - 1 for one in points if one.high is not None]
    return median(widths) if widths else None
