"""Which constants make predicted steps fit published ones? The most probable ones, given what is believed of each.

Residuals are ln(predicted / measured). Each source weighs as the square root of its rows, so that a table of hundreds
does not drown a paper's ten; residuals beyond LARGE weigh less, so that no odd row pulls; every constant is held to its
prior and inside its bounds. A few damped steps of Gauss and Newton in the logarithms reach the optimum. Dense models
give what all steps share; mixtures of experts then give what is theirs alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
from numpy.typing import NDArray

from service.calibration.step_constants_table import DENSE, SPARSE, Fitted, at_priors
from service.calibration.step_rows import StepRow
from service.estimator.constants import STEP_CONSTANTS, StepConstants
from service.estimator.question import Question
from service.estimator.resolve import Resolved, resolve
from service.estimator.run.stages import LoadedStage, memory_of, slowest_step, stages_of, total_seconds
from service.estimator.software.versions import generation
from service.estimator.time.step import FITTED_GENERATIONS

Vector = NDArray[np.float64]

NOISE = 0.08
"""Residuals that the formulas leave however well their constants are known."""

LARGE = 0.12
"""Residuals beyond this weigh less (Huber 1964)."""

ROUNDS = 4
"""Steps of Gauss and Newton from the priors."""

ROUNDS_AGAIN = 2
"""Steps from the optimum of other rows, which lies near."""

LONGEST_STEP = 0.5
"""No constant moves further in one step, in its logarithm."""

NUDGE = 0.03
"""By how much a constant is moved to see what it does, in its logarithm."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question worked out as far as no constant matters."""

    resolved: Resolved
    stages: list[LoadedStage]
    filled_fraction: float
    """Reserved memory of the fullest device over what it has."""

    def seconds(self, constants: StepConstants) -> float:
        """Seconds of its step by some constants [s]."""
        job = replace(self.resolved.job, constants=constants)
        layout = self.resolved.question.layout
        return total_seconds(slowest_step(job, self.resolved.degrees, layout, self.stages, self.filled_fraction))


def asked(question: Question) -> Asked:
    """A question worked out as far as no constant matters.

    Args:
        question: the question

    Returns:
        what the constants are then tried on
    """
    resolved = resolve(question)
    stages = stages_of(resolved.job, resolved.degrees, resolved.question.layout)
    memory = memory_of(resolved, stages)
    return Asked(resolved, stages, memory.reserved_peak_bytes.value / memory.usable_bytes)


class FittedSteps:
    """The estimator with its constants fitted anew on whatever rows it is given."""

    def __init__(self) -> None:
        self._asked: dict[str, Asked] = {}
        self._fits: dict[tuple[str, ...], StepConstants] = {}

    def fit(self, rows: Sequence[StepRow]) -> StepConstants:
        """The constants that some rows give.

        Args:
            rows: the rows

        Returns:
            the constants: of dense models on GPUs of the fitted generations, then of experts
        """
        giving = [row for row in rows if row.gives_constants]
        dense = [row for row in giving if not _is_sparse(row) and _is_fitted(row)]
        names = tuple(row.id for row in dense)
        if names not in self._fits:
            first = next(iter(self._fits.values()), None)
            start, rounds = (at_priors(STEP_CONSTANTS, DENSE), ROUNDS) if first is None else (first, ROUNDS_AGAIN)
            self._fits[names] = self._improved(dense, DENSE, start, rounds)
        start = at_priors(self._fits[names], SPARSE)
        return self._improved([row for row in giving if _is_sparse(row)], SPARSE, start, ROUNDS)

    def step_seconds(self, question: Question, fitted: object) -> float:
        """Seconds of a step by some constants.

        Args:
            question: the question
            fitted: the constants

        Returns:
            seconds of one step [s]
        """
        if not isinstance(fitted, StepConstants):
            raise TypeError("constants of a step are StepConstants")
        return asked(question).seconds(fitted)

    def _improved(
        self, rows: Sequence[StepRow], table: tuple[Fitted, ...], constants: StepConstants, rounds: int
    ) -> StepConstants:
        if not rows:
            return constants
        every = [self._work(row) for row in rows]
        measured = np.array([log(row.measured_seconds) for row in rows])
        weights = _weights(rows)
        for _ in range(rounds):
            constants = _improved(constants, table, every, measured, weights)
        return constants

    def _work(self, row: StepRow) -> Asked:
        if row.id not in self._asked:
            self._asked[row.id] = asked(row.question)
        return self._asked[row.id]


def _improved(
    constants: StepConstants, table: tuple[Fitted, ...], every: Sequence[Asked], measured: Vector, weights: Vector
) -> StepConstants:
    """One step towards the optimum."""
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
    doubts = np.array([one.doubt_fraction for one in table])
    away = np.array([log(one.of(constants) / one.prior) for one in table])
    left = np.vstack([np.column_stack(slopes) * trust[:, None], np.diag(1 / doubts)])
    right = np.concatenate([-residuals * trust, -away / doubts])
    step = np.clip(np.linalg.lstsq(left, right, rcond=None)[0], -LONGEST_STEP, LONGEST_STEP)
    for one, change in zip(table, step, strict=True):
        constants = one.put(constants, one.of(constants) * float(np.exp(change)))
    return constants


def _logarithms(every: Sequence[Asked], constants: StepConstants) -> Vector:
    return np.array([log(one.seconds(constants)) for one in every])


def _weights(rows: Sequence[StepRow]) -> Vector:
    """Square roots of weights that sum to the number of rows, each source's as the root of its own number."""
    counts = Counter(row.left_out_with for row in rows)
    raw = np.array([counts[row.left_out_with] ** -0.5 for row in rows])
    weights: Vector = np.sqrt(raw * len(rows) / raw.sum())
    return weights


def _is_sparse(row: StepRow) -> bool:
    return bool(row.question.model.num_experts)


def _is_fitted(row: StepRow) -> bool:
    return generation(row.question.gpu) in FITTED_GENERATIONS
