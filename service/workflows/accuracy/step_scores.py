"""How near do steps come that constants never saw, and how near would a single number come? Scores by group of rows."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from math import expm1
from statistics import fmean, median

from service.calibration.scores import Comparison, Errors, errors_of
from service.calibration.steps import (
    HeldOutStep,
    StepRow,
    Worked,
    constant_utilisation_seconds,
    held_out_steps,
    shipped_held_out,
)
from service.calibration.tables import IMAGE_HOST, THROUGHPUT, MeasuredRow, NotExpressible, shipped_rows
from service.workflows.accuracy.answers import RelativeErrors, StepScores
from service.workflows.accuracy.judged import Judged
from service.workflows.accuracy.steps import step_row_of


class StepJudge:
    """Held-out predictions and baselines of some judged steps, looked up by row."""

    def __init__(self, judged: Sequence[Judged]) -> None:
        told = [(one, row) for one in judged if (row := step_row_of(one)) is not None]
        shipped = {row.id for one, row in told if _is_shipped(one.row)}
        known = {name: found for name, found in shipped_held_out().predicted_seconds.items() if name in shipped}
        self._held_out = {one.row.id: one for one in held_out_steps([row for _, row in told], known)}
        self._constant_mfu = _baseline(told, counts_attention=True)
        self._six_pd = _baseline(told, counts_attention=False)

    def scores_of(self, group: Sequence[Judged]) -> StepScores | None:
        """Scores of a group's rows told in full.

        Args:
            group: some of the judged rows

        Returns:
            the scores; None where the group has no step to score
        """
        ids = [row.id for one in group if (row := step_row_of(one)) is not None]
        if not ids:
            return None
        held_out = [self._held_out[name] for name in ids if name in self._held_out]
        spreads = [one.spread_fraction for one in held_out if one.spread_fraction is not None]
        return StepScores(
            held_out=_held_out_errors(held_out),
            half_width_fraction=expm1(median(spreads)) if spreads else None,
            held_out_classes=tuple(sorted({one.step_class for one in held_out})),
            constant_mfu=_wire(errors_of([self._constant_mfu[name] for name in ids]), coverage=None),
            six_pd=_wire(errors_of([self._six_pd[name] for name in ids]), coverage=None),
        )


def _is_shipped(row: MeasuredRow) -> bool:
    """Whether a row is one that the package ships, in every cell that is read: held-out predictions are of those."""
    found = _shipped().get(row.text("id"))
    return found is not None and all(
        IMAGE_HOST.sub("", row.text(column)) == found.text(column) for column in THROUGHPUT.used
    )


@cache
def _shipped() -> dict[str, MeasuredRow]:
    return {row.text("id"): row for row in shipped_rows("throughput")}


def _held_out_errors(held_out: Sequence[HeldOutStep]) -> RelativeErrors:
    inside = [float(one.comparison.is_covered) for one in held_out if one.spread_fraction is not None]
    return _wire(errors_of([one.comparison for one in held_out]), coverage=fmean(inside) if inside else None)


def _wire(errors: Errors, coverage: float | None) -> RelativeErrors:
    return RelativeErrors(**{**asdict(errors), "coverage80_fraction": coverage})


def _baseline(told: Sequence[tuple[Judged, StepRow]], *, counts_attention: bool) -> dict[str, Comparison]:
    """Steps at one utilisation of each GPU, by row: of the FLOP of the causal convention, or of 6 N D."""
    works = [_worked(one, row, counts_attention=counts_attention) for one, row in told]
    return {
        row.id: Comparison(row.measured_seconds, seconds, seconds, seconds)
        for (_, row), seconds in zip(told, constant_utilisation_seconds(works), strict=True)
    }


def _worked(one: Judged, row: StepRow, *, counts_attention: bool) -> Worked:
    if one.predicted is None:
        raise NotExpressible("a step is compared that was never predicted")
    found = one.predicted.found
    six_n = found.flop.conventions.six_n * found.flop.per_step_tokens
    return Worked(
        left_out_with=row.left_out_with,
        gpu=row.question.gpu.slug,
        work_flop=float(found.flop.per_step_flop if counts_attention else six_n),
        peak_flop_per_s=found.step.peak_flop_per_s * found.resolved.cluster.gpus,
        measured_seconds=row.measured_seconds,
        is_apart=row.is_apart,
        is_moe=one.is_moe,
    )
