"""Published steps: constants fitted to them, predictions without their own source, and widths of intervals."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from math import ceil, exp, log
from statistics import median
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from service.calibration.scores import Comparison, spread_fraction
from service.calibration.tables import shipped_table, shipped_toml
from service.estimator import FORMULAS_VERSION
from service.estimator.constants import STEP_CONSTANTS, StepConstants
from service.estimator.question import Question
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.run import LoadedStage, memory_of, slowest_step, stages_of, total_seconds
from service.estimator.software.stacks import requested_software
from service.estimator.software.versions import generation
from service.estimator.time.step import (
    FITTED_GENERATIONS,
    LEAST_RESIDUAL,
    Operations,
    StepClass,
    spread_scale,
    step_class_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One published step with its question."""

    id: str
    source_key: str
    left_out_with: str
    """Name of the rows that are left out of a fit together: those of a source."""
    question: Question
    stack: Operations
    """The stack of its framework, and the implementation of its operations."""
    measured_seconds: float
    waiting_fraction: float
    """Share of the predicted step in which a device waits."""
    is_scored_apart: bool
    """It is counted apart: it gives no spread, and is scored beside the others."""
    gives_constants: bool = True
    """It is part of a fit."""

    @property
    def states_dispatcher(self) -> bool:
        """Whether its recipe states how tokens reach their experts."""
        return requested_software(self.question.recipe).dispatcher is not None

    @property
    def withheld(self) -> Question:
        """Its question without how tokens reach their experts and what graphs hold."""
        stack = replace(requested_software(self.question.recipe), **WITHHELD)
        return replace(self.question, recipe=replace(self.question.recipe, stack=stack))


WITHHELD: Mapping[str, Any] = {
    "dispatcher": None,
    "routed_nodes": None,
    "expert_overlap": False,
    "cuda_graphs": False,
    "partial_graphs": False,
}
"""What a recipe that does not state it leaves as it is by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One number that a fit may change."""

    field: str
    key: Any = None
    """Its key, where the field is a table."""
    prior: float
    """Value of a benchmark, a data sheet or a paper."""
    sigma_fraction: float
    """Relative standard deviation of the prior."""
    low: float
    """Lower physical bound."""
    high: float
    """Upper physical bound."""
    source: str
    """Source of the prior."""

    def of(self, constants: StepConstants) -> float:
        """Its value in some constants; one for a stack that has none yet."""
        result = getattr(constants, self.field)
        return float(result if self.key is None else result.get(self.key, 1.0))

    def put(self, constants: StepConstants, value: float) -> StepConstants:
        """The constants with another value, clipped to the bounds."""
        clipped = min(self.high, max(self.low, value))
        changed: Any = clipped if self.key is None else {**getattr(constants, self.field), self.key: clipped}
        return replace(constants, **{self.field: changed})


def _priors(rows_of: str) -> tuple[Fitted, ...]:
    """The constants that some rows determine. A stack is written as framework/implementation."""
    results = []
    for row in shipped_table("step_priors"):
        if row["rows_of"] == rows_of:
            key = tuple(row["key"].split("/")) if row["field"] == "stack_scales" else row["key"] or None
            numbers = {name: float(row[name]) for name in ("prior", "sigma_fraction", "low", "high")}
            results.append(Fitted(field=row["field"], key=key, source=row["source"], **numbers))
    return tuple(results)


DENSE = _priors("dense")
"""Constants that steps of dense models determine."""

NEWER = _priors("newer")
"""Further constants that steps of dense models on GPUs since then determine."""

SPARSE = _priors("sparse")
"""Further constants that steps of mixtures of experts determine."""

ASSUMED = _priors("assumed")
"""Constants that no published step determines: the prior itself is shipped."""


def at_priors(constants: StepConstants, table: tuple[Fitted, ...]) -> StepConstants:
    """Constants with the priors of a table."""
    for one in table:
        constants = one.put(constants, one.prior)
    return constants


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStep:
    """The work of one published step, and the peak of its GPUs."""

    left_out_with: str
    """Name of the rows that never give the utilisation that predicts them."""
    gpu: str
    """Catalogue name of the GPU."""
    is_moe: bool = False
    """A mixture of experts; dense models never give its utilisation."""
    work_flop: float
    """FLOP of one step by the convention of a baseline."""
    peak_flop_per_s: float
    """Dense peak of all GPUs together."""
    measured_seconds: float
    is_scored_apart: bool = False
    """It is counted apart and gives no utilisation."""

    @property
    def utilisation_fraction(self) -> float:
        """Share of the peak that was reached [1]."""
        return self.work_flop / self.peak_flop_per_s / self.measured_seconds


def constant_utilisation_seconds(rows: Sequence[PublishedStep]) -> list[float]:
    """Seconds of each step at the utilisation that all other sources reach on its GPU.

    Formula:
        F / (u R),  u = median over sources of the median of F / (R t), of models of the same kind on the same GPU; on
        every GPU where no other source has it
    Args:
        rows: the steps
    Returns: seconds of each [s]; the rows of a single source are predicted by their own utilisation
    Source: the usual rule of thumb, with the best value for it: one MFU for each GPU

    >>> steps = [
    ...     PublishedStep(left_out_with=name, gpu="h100", work_flop=4.0, peak_flop_per_s=10.0, measured_seconds=seconds)
    ...     for name, seconds in (("one", 1.0), ("two", 2.0))
    ... ]
    >>> [round(seconds, 9) for seconds in constant_utilisation_seconds(steps)]
    [2.0, 1.0]
    """
    fitted: dict[tuple[str, str, bool], float] = {}
    for row in rows:
        key = (row.left_out_with, row.gpu, row.is_moe)
        if key not in fitted:
            fitting = [other for other in rows if not other.is_scored_apart and other.is_moe == row.is_moe]
            others = [other for other in fitting if other.left_out_with != row.left_out_with] or rows
            reached: dict[str, list[float]] = {}
            for other in [other for other in others if other.gpu == row.gpu] or others:
                reached.setdefault(other.left_out_with, []).append(other.utilisation_fraction)
            fitted[key] = median(map(median, reached.values()))
    return [row.work_flop / row.peak_flop_per_s / fitted[row.left_out_with, row.gpu, row.is_moe] for row in rows]


FILE = "published/held_out.toml"

DIGITS = 6
"""Significant digits of a shipped prediction."""


class StepModel(Protocol):
    """A model of steps with constants fitted to published ones."""

    def fit(self, rows: Sequence[StepRow]) -> object:
        """The best constants for some rows."""

    def step_seconds(self, question: Question, fitted: object) -> float:
        """Seconds of a step by some constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Predictions of steps, each by constants that never saw the row's source."""

    formulas: str
    """Version of the formulas that predicted."""
    digest: str
    """Digest of the shipped constants' predictions of the same rows: these are stale where it differs."""
    predicted_seconds: Mapping[str, float]
    """Seconds of a step by the row's name."""
    withheld_seconds: Mapping[str, float]
    """The same where how tokens reach their experts is withheld."""


def held_out_seconds(
    rows: Sequence[StepRow], model: StepModel, only: Collection[str] | None = None, *, withholds: bool = False
) -> dict[str, float]:
    """Predictions of every row, or of those with something to withhold, by constants fitted without its source."""
    result = {}
    for name in dict.fromkeys(row.left_out_with for row in rows):
        if only is not None and name not in only:
            continue
        own = [row for row in rows if row.left_out_with == name]
        if withholds and not (own := [row for row in own if _is_sparse(row) and row.states_dispatcher]):
            continue
        fitted = model.fit([row for row in rows if row.left_out_with != name])
        asked = {row.id: row.withheld if withholds else row.question for row in own}
        result.update({name: model.step_seconds(question, fitted) for name, question in asked.items()})
    return result


def digest_of(seconds: Mapping[str, float]) -> str:
    """Digest of predictions.

    >>> digest_of({"a": 1.0}) == digest_of({"a": 1.00000004}), digest_of({"a": 1.0}) == digest_of({"a": 1.1})
    (True, False)
    """
    return sha256("\n".join(_lines(seconds)).encode()).hexdigest()[:16]


def held_out_text(held_out: Mapping[str, float], withheld: Mapping[str, float], shipped: Mapping[str, float]) -> str:
    """The file of held-out predictions."""
    head = f'formulas = "{FORMULAS_VERSION}"\ndigest = "{digest_of(shipped)}"\n\n[predicted_seconds]'
    return "\n".join([head, *_lines(held_out), "\n[withheld_seconds]", *_lines(withheld), ""])


def rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    """Predictions with the digits of the file.

    >>> rounded({"a": 1.23456789})
    {'a': 1.23457}
    """
    return {name: float(_number(value)) for name, value in seconds.items()}


@cache
def shipped_held_out() -> HeldOut:
    """The held-out predictions that the package ships."""
    return HeldOut(**shipped_toml("held_out"))


def _lines(seconds: Mapping[str, float]) -> list[str]:
    return [f'"{name}" = {_number(seconds[name])}' for name in sorted(seconds)]


def _number(seconds: float) -> str:
    text = f"{seconds:.{DIGITS}g}"
    return text if "." in text or "e" in text else f"{text}.0"


Vector = NDArray[np.float64]

NOISE = 0.08
"""Residuals of the formulas with the right constants."""
LARGE = 0.12
"""Residuals beyond this weigh less (Huber 1964)."""
ROUNDS = 4
"""Steps of Gauss and Newton from the priors."""
ROUNDS_AGAIN = 2
"""Steps from the optimum of other rows, which lies near."""
LONGEST_STEP = 0.5
"""Longest step of a constant, in its logarithm."""
NUDGE = 0.03
"""Change of a constant for its derivative, in its logarithm."""


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A resolved question up to the part that depends on constants."""

    resolved: ResolvedQuestion
    stages: list[LoadedStage]
    filled_fraction: float
    """Reserved memory of the GPU with the most over its usable memory."""

    def seconds(self, constants: StepConstants) -> float:
        """Seconds of its step by some constants [s]."""
        resolved = replace(self.resolved, workload=replace(self.resolved.workload, constants=constants))
        return total_seconds(slowest_step(resolved, self.stages, self.filled_fraction))


def prepared_step(question: Question) -> PreparedStep:
    """A resolved question up to the part that depends on constants."""
    resolved = resolve(question)
    stages = stages_of(resolved)
    memory = memory_of(resolved, stages)
    return PreparedStep(resolved, stages, memory.reserved_peak_bytes.value / memory.usable_bytes)


class FittedSteps:
    """The estimator with its constants fitted to given rows."""

    def __init__(self) -> None:
        self._prepared: dict[str, PreparedStep] = {}
        self._fits: dict[tuple[str, ...], StepConstants] = {}

    def prepared_anew(self) -> "FittedSteps":
        """The same fits of dense models, for formulas that changed those of models with experts."""
        other = FittedSteps()
        other._fits = self._fits
        return other

    def fit(self, rows: Sequence[StepRow]) -> StepConstants:
        """The best constants for some rows."""
        giving = [row for row in rows if row.gives_constants]
        dense = [row for row in giving if not _is_sparse(row) and generation(row.question.gpu) in FITTED_GENERATIONS]
        names = tuple(row.id for row in dense)
        if names not in self._fits:
            first = next(iter(self._fits.values()), None)
            start, rounds = (at_priors(STEP_CONSTANTS, DENSE), ROUNDS) if first is None else (first, ROUNDS_AGAIN)
            self._fits[names] = self._improved(dense, DENSE, start, rounds)
        constants, since = self._fits[names], {one.key for one in NEWER}
        newer = [row for row in giving if not _is_sparse(row) and generation(row.question.gpu) in since]
        constants = self._improved(newer, NEWER, at_priors(constants, NEWER), ROUNDS)
        start = at_priors(constants, SPARSE)
        return self._improved([row for row in giving if _is_sparse(row)], SPARSE, start, ROUNDS)

    def step_seconds(self, question: Question, fitted: object) -> float:
        """Seconds of a step by some constants."""
        if not isinstance(fitted, StepConstants):
            raise TypeError("constants of a step are StepConstants")
        return prepared_step(question).seconds(fitted)

    def _improved(
        self, rows: Sequence[StepRow], table: tuple[Fitted, ...], constants: StepConstants, rounds: int
    ) -> StepConstants:
        """Constants after some steps; each source weighs as the root of its number of rows, and all sum to theirs."""
        if not rows:
            return constants
        for row in rows:
            if row.id not in self._prepared:
                self._prepared[row.id] = prepared_step(row.question)
        every = [self._prepared[row.id] for row in rows]
        measured = np.array([log(row.measured_seconds) for row in rows])
        counts = Counter(row.left_out_with for row in rows)
        raw = np.array([counts[row.left_out_with] ** -0.5 for row in rows])
        weights: Vector = np.sqrt(raw * len(rows) / raw.sum())
        for _ in range(rounds):
            constants = _improved(constants, table, every, measured, weights)
        return constants


def _improved(
    constants: StepConstants,
    table: tuple[Fitted, ...],
    every: Sequence[PreparedStep],
    measured: Vector,
    weights: Vector,
) -> StepConstants:
    now = _logarithms(every, constants)
    residuals = now - measured
    trust = weights * np.sqrt(np.minimum(1.0, LARGE / np.maximum(np.abs(residuals), 1e-12))) / NOISE
    moved = [one.put(constants, one.of(constants) * float(np.exp(NUDGE))) for one in table]
    moved = [
        m if one.of(m) != one.of(constants) else one.put(constants, one.of(constants) * float(np.exp(-NUDGE)))
        for one, m in zip(table, moved, strict=True)
    ]
    slopes = [
        (_logarithms(every, m) - now) / log(one.of(m) / one.of(constants)) for one, m in zip(table, moved, strict=True)
    ]
    deviations = np.array([one.sigma_fraction for one in table])
    away = np.array([log(one.of(constants) / one.prior) for one in table])
    left = np.vstack([np.column_stack(slopes) * trust[:, None], np.diag(1 / deviations)])
    right = np.concatenate([-residuals * trust, -away / deviations])
    step = np.clip(np.linalg.lstsq(left, right, rcond=None)[0], -LONGEST_STEP, LONGEST_STEP)
    for one, change in zip(table, step, strict=True):
        constants = one.put(constants, one.of(constants) * float(np.exp(change)))
    return constants


def _logarithms(every: Sequence[PreparedStep], constants: StepConstants) -> Vector:
    return np.array([log(one.seconds(constants)) for one in every])


def _is_sparse(row: StepRow) -> bool:
    return bool(row.question.model.num_experts)


DECIMALS = 1e3
"""A shipped spread is rounded up to thousandths."""

STAND_INS: dict[StepClass, StepClass] = {"new GPU": "old GPU", "old GPU": "new GPU"}
"""Class with the spread of a source that is the only one of its own class: nothing is fitted to either."""


@dataclass(frozen=True, slots=True)
class HeldOutStep:
    """One step predicted without its source: value by constants, spread by residuals, that never saw it."""

    row: StepRow
    step_class: StepClass
    predicted_seconds: float
    spread_fraction: float | None
    """Spread of the class without its source, or of its stand-in; None where no other source is of either."""

    @property
    def comparison(self) -> Comparison:
        """The prediction beside the measured time; an empty interval without a spread."""
        value, spread = self.predicted_seconds, self.spread_fraction or 0.0
        return Comparison(self.row.measured_seconds, value * exp(-spread), value, value * exp(spread))


def held_out_steps(
    rows: Sequence[StepRow], predicted_seconds: Mapping[str, float], withheld_seconds: Mapping[str, float]
) -> list[HeldOutStep]:
    """Steps predicted without their sources, in the intervals of the other sources."""
    known = [row for row in rows if row.id in predicted_seconds]
    classes = _classes_left_out(known, rows)
    pools = _residuals(known, classes, predicted_seconds, withheld_seconds)
    results = []
    for row in known:
        step_class = classes[row.id]
        scale = spread_scale(row.waiting_fraction)
        pooled = [pools.get(one, {}) for one in (step_class, STAND_INS.get(step_class)) if one]
        others = ({name: own for name, own in pool.items() if name != row.left_out_with} for pool in pooled)
        spread = next((spread_fraction(pool, by_root=True) for pool in others if pool), None)
        width = None if spread is None else max(LEAST_RESIDUAL, spread * scale)
        results.append(HeldOutStep(row, step_class, predicted_seconds[row.id], width))
    return results


def step_spreads(
    rows: Sequence[StepRow], predicted_seconds: Mapping[str, float], withheld_seconds: Mapping[str, float]
) -> dict[StepClass, float]:
    """The spread of each class, rounded as in the estimator."""
    known = [row for row in rows if row.id in predicted_seconds]
    classes = _classes_left_out(known, rows)
    pools = _residuals(known, classes, predicted_seconds, withheld_seconds)
    spreads = {name: spread_fraction(pool, by_root=True) for name, pool in pools.items()}
    return {name: ceil(spread * DECIMALS) / DECIMALS for name, spread in spreads.items() if spread is not None}


def _classes_left_out(known: Sequence[StepRow], rows: Sequence[StepRow]) -> dict[str, StepClass]:
    """The class of each row while its source is left out: its stack is known where another source runs it."""
    fitted = {
        (row.stack, row.left_out_with)
        for row in rows
        if not row.is_scored_apart and generation(row.question.gpu) in FITTED_GENERATIONS
    }
    names = {row.left_out_with for row in known}
    others = {name: {stack for stack, left_out_with in fitted if left_out_with != name} for name in names}
    return {
        row.id: step_class_of(
            row.stack,
            row.question.gpu,
            is_sparse=_is_sparse(row),
            states_dispatcher=row.states_dispatcher,
            known_stacks=others[row.left_out_with],
        )
        for row in known
    }


def _residuals(
    rows: Sequence[StepRow],
    classes: Mapping[str, StepClass],
    predicted_seconds: Mapping[str, float],
    withheld_seconds: Mapping[str, float],
) -> dict[StepClass, dict[str, list[float]]]:
    """ln(measured / predicted) over each step's scale, by class and by rows left out together, without those apart."""
    pools: dict[StepClass, dict[str, list[float]]] = {}
    for row in rows:
        found: list[tuple[StepClass, Mapping[str, float]]] = [
            (classes[row.id], predicted_seconds),
            ("MoE, dispatcher unknown", withheld_seconds),
        ]
        for step_class, predicted in found:
            if row.id in predicted and not row.is_scored_apart:
                scale = spread_scale(row.waiting_fraction)
                own = pools.setdefault(step_class, {}).setdefault(row.left_out_with, [])
                own.append(log(row.measured_seconds / predicted[row.id]) / scale)
    return pools
