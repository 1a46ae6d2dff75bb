"""Which predictions are farthest off, and where do their bytes lie?"""

from collections.abc import Sequence
from typing import NamedTuple

from service.calibration.scores import Comparison
from service.estimator.answer import StageMemory
from service.units import BYTES, said
from service.workflows.accuracy.answers import WorstRow, WorstStep
from service.workflows.accuracy.judged import Judged
from service.workflows.accuracy.steps import figure_of

MOST = 20
"""Rows that are told."""

LARGEST_LINES = 3
"""Lines of a prediction that are told."""

SMALLEST_SCALE_BYTES = 4.0 * (1 << 30)
"""An error in bytes is set against this where less was measured, or tiny models would fill the list."""


class _Compared(NamedTuple):
    judged: Judged
    comparison: Comparison
    stage: StageMemory


def worst_rows(judged: Sequence[Judged]) -> tuple[WorstRow, ...]:
    """The rows whose predictions are farthest off.

    Args:
        judged: what became of each row

    Returns:
        at most MOST of them, the farthest first
    """
    compared = [
        _Compared(one, comparison, one.stage)
        for one in judged
        if (comparison := one.comparison) is not None and one.stage is not None
    ]
    ordered = sorted(compared, key=lambda one: (-_distance(one.comparison), one.judged.row.text("id")))
    return tuple(_worst(*one) for one in ordered[:MOST])


def worst_steps(judged: Sequence[Judged]) -> tuple[WorstStep, ...]:
    """The steps told in full whose predictions are farthest off.

    Args:
        judged: what became of each row

    Returns:
        at most MOST of them, the farthest first
    """
    compared = [(one, comparison) for one in judged if one.is_told and (comparison := one.comparison) is not None]
    steps = [(one, comparison) for one, comparison in compared if one.quantity == "step"]
    ordered = sorted(steps, key=lambda pair: (-abs(pair[1].residual_fraction), pair[0].row.text("id")))
    return tuple(_worst_step(*pair) for pair in ordered[:MOST])


def _worst_step(judged: Judged, comparison: Comparison) -> WorstStep:
    row, parts = judged.row, judged.predicted.found.step.parts if judged.predicted else ()
    told = [f"measured: {figure_of(row)}", *(judged.predicted.nearly if judged.predicted else ())]
    return WorstStep(
        id=row.text("id"),
        source_key=row.text("source_key"),
        source=row.text("source"),
        step_class=judged.figure_class,
        measured_seconds=comparison.measured,
        low_seconds=comparison.low,
        value_seconds=comparison.value,
        high_seconds=comparison.high,
        error_fraction=comparison.error_fraction,
        parts=tuple(sorted(parts, key=lambda part: -part.seconds)[:LARGEST_LINES]),
        reason="; ".join([*told, *((f"the source: {quality}",) if (quality := row.text("quality")) else ())]),
    )


def _distance(comparison: Comparison) -> float:
    return abs(comparison.distance) / max(comparison.measured, SMALLEST_SCALE_BYTES)


def _worst(judged: Judged, comparison: Comparison, stage: StageMemory) -> WorstRow:
    row = judged.row
    lines = sorted(stage.lines, key=lambda line: -line.bytes)[:LARGEST_LINES]
    return WorstRow(
        id=row.text("id"),
        source_key=row.text("source_key"),
        source=row.text("source"),
        quantity=judged.quantity,
        memory_class=judged.figure_class,
        measured_bytes=comparison.measured,
        low_bytes=comparison.low,
        value_bytes=comparison.value,
        high_bytes=comparison.high,
        error_fraction=comparison.error_fraction,
        lines=tuple(lines),
        reason=reason_of(judged, comparison, stage),
    )


def reason_of(judged: Judged, comparison: Comparison, stage: StageMemory) -> str:
    """What stands behind a prediction that is off: by how much, its largest lines, what the question does not say.

    Args:
        judged: what became of the row
        comparison: prediction beside figure
        stage: the stage that was measured

    Returns:
        one line
    """
    distance = said(abs(comparison.distance), BYTES)
    lines = sorted(stage.lines, key=lambda line: -line.bytes)[:LARGEST_LINES]
    largest = ", ".join(f"{line.kind.replace('_', ' ')} {said(line.bytes, BYTES)}" for line in lines)
    parts = [
        f"{distance} too {'much' if comparison.distance > 0 else 'little'}",
        f"stage {stage.stage} of {len(judged.predicted.memory.stages) if judged.predicted else 1}: {largest}",
        *(judged.predicted.nearly if judged.predicted else ()),
        *((f"not told: {missing}",) if (missing := judged.row.text("config_missing")) else ()),
        *((f"the source: {quality}",) if (quality := judged.row.text("quality")) else ()),
    ]
    return "; ".join(parts)
