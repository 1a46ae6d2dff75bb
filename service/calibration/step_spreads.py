"""How wide must the interval of a step be? Held-out residuals by class, each source counting as much as any other.

A residual is taken over the scale of its step: the more of a step is waiting, for transfers, stages or the host, the
less is known of it. A class holds what is predicted under like circumstances: a stack that other sources of the fit run
too, a stack that none of them runs, a GPU on which nothing is fitted, a mixture of experts. Whatever a row is left out
of the fit with is left out of the spread too when coverage is judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log

from service.calibration.residuals import spread_fraction
from service.calibration.scores import Comparison
from service.calibration.step_rows import StepRow
from service.estimator.software.versions import generation
from service.estimator.time.step import FITTED_GENERATIONS, LEAST_RESIDUAL, StepClass, spread_scale, step_class_of

DECIMALS = 1e3
"""A shipped spread is rounded up to thousandths."""

STAND_INS: dict[StepClass, StepClass] = {"new GPU": "old GPU", "old GPU": "new GPU"}
"""Whose spread judges a source that is the only one of its class: nothing is fitted on either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutStep:
    """One step as predicted without its source: value by constants, spread by residuals, that never saw it."""

    row: StepRow
    """The row."""
    step_class: StepClass
    """Its class while its source was left out."""
    predicted_seconds: float
    """The prediction."""
    spread_fraction: float | None
    """Spread of the class without its source, or of its stand-in; None where no other source is of either."""

    @property
    def comparison(self) -> Comparison:
        """Prediction beside figure; an empty interval where there is no spread."""
        value, spread = self.predicted_seconds, self.spread_fraction or 0.0
        return Comparison(self.row.measured_seconds, value * exp(-spread), value, value * exp(spread))


def held_out_steps(rows: Sequence[StepRow], predicted_seconds: Mapping[str, float]) -> list[HeldOutStep]:
    """Steps as predicted without their sources, with the intervals that the other sources ask for.

    Args:
        rows: the rows
        predicted_seconds: held-out predictions by the row's name [s]

    Returns:
        one for each row that has a prediction
    """
    known = [row for row in rows if row.id in predicted_seconds]
    classes = _classes_left_out(known, rows)
    pools = _residuals(known, classes, predicted_seconds)
    found = []
    for row in known:
        spread = _spread_without(row.left_out_with, classes[row.id], pools)
        found.append(
            HeldOutStep(
                row=row,
                step_class=classes[row.id],
                predicted_seconds=predicted_seconds[row.id],
                spread_fraction=None if spread is None else max(LEAST_RESIDUAL, spread * _scale(row)),
            )
        )
    return found


def _spread_without(name: str, own: StepClass, pools: Mapping[StepClass, Mapping[str, list[float]]]) -> float | None:
    """The spread of a class without what is left out together, that of its stand-in where nothing else is of it."""
    for one in (own, STAND_INS.get(own)):
        others = {other: found for other, found in pools.get(one, {}).items() if other != name} if one else {}
        if others:
            return spread_fraction(others)
    return None


def step_spreads(rows: Sequence[StepRow], predicted_seconds: Mapping[str, float]) -> dict[StepClass, float]:
    """The spread of each class, as the estimator states it.

    Args:
        rows: the rows
        predicted_seconds: held-out predictions by the row's name [s]

    Returns:
        spreads, rounded up; classes without a row are missing
    """
    known = [row for row in rows if row.id in predicted_seconds]
    classes = _classes_left_out(known, rows)
    found = {}
    for name, pool in _residuals(known, classes, predicted_seconds).items():
        if (spread := spread_fraction(pool)) is not None:
            found[name] = ceil(spread * DECIMALS) / DECIMALS
    return found


def _classes_left_out(known: Sequence[StepRow], rows: Sequence[StepRow]) -> dict[str, StepClass]:
    """The class of each row while its source is left out: its stack is known where another source runs it."""
    fitted = {
        (row.stack, row.left_out_with)
        for row in rows
        if not row.is_apart and generation(row.question.gpu) in FITTED_GENERATIONS
    }
    names = {row.left_out_with for row in known}
    others = {name: {stack for stack, left_out_with in fitted if left_out_with != name} for name in names}
    return {
        row.id: step_class_of(
            row.stack,
            row.question.gpu,
            is_sparse=bool(row.question.model.num_experts),
            known_stacks=others[row.left_out_with],
        )
        for row in known
    }


def _scale(row: StepRow) -> float:
    return spread_scale(row.waiting_fraction)


def _residuals(
    rows: Sequence[StepRow], classes: Mapping[str, StepClass], predicted_seconds: Mapping[str, float]
) -> dict[StepClass, dict[str, list[float]]]:
    """ln(measured / predicted) over each step's scale, by class and by what is left out together, but those apart."""
    pools: dict[StepClass, dict[str, list[float]]] = {}
    for row in rows:
        if not row.is_apart:
            own = pools.setdefault(classes[row.id], {}).setdefault(row.left_out_with, [])
            own.append(log(row.measured_seconds / predicted_seconds[row.id]) / _scale(row))
    return pools
