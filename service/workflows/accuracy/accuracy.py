"""How near do predictions come to a table of measurements? Groups by source and class, verdicts, the worst rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from service.calibration.in_sample import constants_read_off
from service.calibration.measured_rows import MeasuredRow
from service.calibration.residuals import left_out_fraction
from service.calibration.scores import score
from service.calibration.shipped import shipped_rows
from service.catalogue import Catalogue, shipped_catalogue
from service.estimator import FORMULAS_VERSION
from service.estimator.residuals import class_of
from service.workflows.accuracy.answers import Accuracy, Figures, Group, Quantity, Sized
from service.workflows.accuracy.judging import Judged, judge_all
from service.workflows.accuracy.verdicts import verdicts_of
from service.workflows.accuracy.worst import worst_rows
from service.workflows.estimates import Versions

LARGE_FROM_BYTES: dict[Quantity, float] = {"peak": 4.0 * (1 << 30), "static": 1e9}
"""From where on a value is large: below, workspaces of fixed size weigh more than what formulas are about."""

EVERY = "all"
"""Source and class of the group that holds every peak."""


def accuracy_of(rows: Iterable[MeasuredRow], catalogue: Catalogue) -> Accuracy:
    """How near predictions come to some measurements.

    Args:
        rows: the measurements
        catalogue: the GPUs

    Returns:
        figures by group, verdicts and worst rows
    """
    return accuracy_of_judged(judge_all(rows, catalogue), catalogue)


def accuracy_of_judged(judged: Sequence[Judged], catalogue: Catalogue) -> Accuracy:
    """How near predictions came to some measurements.

    Args:
        judged: what became of each row
        catalogue: the GPUs that were read with

    Returns:
        figures by group, verdicts and worst rows
    """
    keys = sorted({(one.quantity, one.row.text("source_key"), one.memory_class, one.is_moe) for one in judged})
    peaks = [one for one in judged if one.quantity == "peak"]
    return Accuracy(
        versions=Versions(formulas=FORMULAS_VERSION, catalogue=catalogue.revision, calibration=None),
        groups=tuple(
            _group(own := _of_key(judged, key), key[:3], moe=key[3], left_out=_left_out_fraction(judged, own))
            for key in keys
        ),
        all=_group(peaks, ("peak", EVERY, EVERY), moe=None, left_out=None),
        verdicts=verdicts_of(peaks),
        rows_worst=worst_rows(judged),
    )


@cache
def shipped_accuracy() -> Accuracy:
    """How near predictions come to the measurements that the package ships.

    Returns:
        the answer, computed once a process
    """
    return accuracy_of(shipped_rows(), shipped_catalogue())


def _of_key(judged: Sequence[Judged], key: tuple[Quantity, str, str, bool]) -> list[Judged]:
    return [one for one in judged if (one.quantity, one.row.text("source_key"), one.memory_class, one.is_moe) == key]


def _group(
    judged: Sequence[Judged], key: tuple[Quantity, str, str], *, moe: bool | None, left_out: float | None
) -> Group:
    quantity, source_key, memory_class = key
    constants = sorted({name for one in judged for name in constants_read_off(one.row.text("source_key"))})
    return Group(
        **_sized(judged, quantity),
        quantity=quantity,
        source_key=source_key,
        memory_class=memory_class,
        moe=moe,
        in_sample=bool(constants),
        constants=tuple(constants),
        coverage80_left_out_fraction=left_out,
        full_config=Sized(**_sized([one for one in judged if one.is_told], quantity)),
    )


def _kind(one: Judged) -> tuple[str, str, str]:
    """What errors of different sources are compared by: the quantity, and the class of stack and model."""
    return one.quantity, *class_of(one.stack, is_sparse=one.is_moe)


def _left_out_fraction(judged: Sequence[Judged], own: Sequence[Judged]) -> float | None:
    """Share of a group's figures inside the interval that the other sources of its kind ask for."""
    kinds = {_kind(one) for one in own if one.comparison is not None}
    residuals: dict[str, list[float]] = {}
    for one in judged:
        if (comparison := one.comparison) is not None and _kind(one) in kinds:
            residuals.setdefault(one.row.text("source_key"), []).append(comparison.residual_fraction)
    return left_out_fraction(residuals, own[0].row.text("source_key"))


def _sized(judged: Sequence[Judged], quantity: Quantity) -> dict[str, Any]:
    border = LARGE_FROM_BYTES[quantity]
    small = [one for one in judged if one.measured_bytes is not None and one.measured_bytes < border]
    large = [one for one in judged if one.measured_bytes is None or one.measured_bytes >= border]
    return {
        **_figures(judged),
        "large_from_bytes": border,
        "large": Figures(**_figures(large)),
        "small": Figures(**_figures(small)),
    }


def _figures(judged: Sequence[Judged]) -> dict[str, Any]:
    compared = [one.comparison for one in judged]
    reasons = Counter(one.reason for one in judged if one.reason and not one.ran_out)
    return {
        "rows": len(judged),
        **asdict(score([one for one in compared if one is not None])),
        "ran_out": sum(one.ran_out for one in judged),
        "not_expressible": dict(sorted(reasons.items())),
    }
