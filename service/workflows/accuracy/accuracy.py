"""How near do predictions come to a table of measurements? Groups by source and class, verdicts, the worst rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, get_args

from service.answers.estimates import Versions
from service.calibration.scores import constants_read_off, errors_of, left_out_fraction, score
from service.calibration.tables import MeasuredRow, shipped_rows
from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Unreachable
from service.estimator import FORMULAS_VERSION
from service.estimator.memory.device import class_of
from service.estimator.time.step import StepClass
from service.store import Engine
from service.store.keys import ANYBODY, Caller
from service.validation.serialization import to_bytes
from service.workflows.accuracy.answers import Accuracy, Figures, Group, Quantity, Sized
from service.workflows.accuracy.judged import Judged
from service.workflows.accuracy.judging import judge_all
from service.workflows.accuracy.measured import own_groups, shipped_measured
from service.workflows.accuracy.step_scores import StepJudge
from service.workflows.accuracy.steps import APART
from service.workflows.accuracy.verdicts import verdicts_of
from service.workflows.accuracy.worst import worst_rows, worst_steps

NO_OWN = b'"own":null}}'
"""End of the JSON of an answer without own measurements, the last field of its last field."""

LARGE_FROM_BYTES: dict[Quantity, float] = {"peak": 4.0 * (1 << 30), "static": 1e9}
"""From where on a value is large: below, workspaces of fixed size weigh more than what formulas are about."""

EVERY = "all"
"""Source and class of the groups that hold every peak, and every step."""

DENSE = "dense, fitted GPU"
"""Class of the steps of dense models on GPUs of fitted generations, whatever the stack."""

STEP_CLASSES: dict[str, tuple[StepClass, ...]] = {
    DENSE: ("known stack", "other stack"),
    "new GPU": ("new GPU",),
    "old GPU": ("old GPU",),
    "MoE": ("MoE",),
    EVERY: get_args(StepClass),
}
"""Classes that are told together over all sources; what is counted apart is in none."""


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
    groups: dict[Key, list[Judged]] = {}
    for one in judged:
        groups.setdefault(_key(one), []).append(one)
    peaks = [one for one in judged if one.quantity == "peak"]
    residuals = _residuals_by_kind(judged)
    steps = StepJudge(judged)
    return Accuracy(
        versions=Versions(formulas=FORMULAS_VERSION, catalogue=catalogue.revision, calibration=None),
        groups=tuple(
            _group(own, key, steps, _left_out_fraction(residuals, own)) for key, own in sorted(groups.items())
        ),
        all=_group(peaks, ("peak", EVERY, EVERY, None), steps, None),
        verdicts=verdicts_of(peaks),
        rows_worst=worst_rows(judged),
        steps=tuple(
            _group(own, ("step", EVERY, name, _moe_of(name)), steps, None)
            for name, classes in {**STEP_CLASSES, APART: (APART,)}.items()
            if (own := [one for one in judged if one.quantity == "step" and one.figure_class in classes])
        ),
        steps_worst=worst_steps(judged),
        measured=shipped_measured(),
    )


@cache
def shipped_accuracy() -> Accuracy:
    """How near predictions come to the measurements that the package ships.

    Returns:
        the answer, computed once a process
    """
    return accuracy_of([*shipped_rows(), *shipped_rows("throughput")], shipped_catalogue())


def shipped_accuracy_json() -> bytes:
    """The same as JSON.

    Returns:
        the answer, in which own measurements are null
    """
    return to_bytes(shipped_accuracy())


def with_own_measurements(
    shipped: bytes, engine: Engine | None, catalogue: Catalogue, caller: Caller = ANYBODY
) -> bytes:
    """How near predictions come to what ships, and to a caller's own measurements.

    Args:
        shipped: the first of them as JSON
        engine: the database; None where there is none
        catalogue: the facts that the caller sees
        caller: who asks

    Returns:
        the answer as JSON; own measurements are null where the database does not answer
    """
    try:
        own = None if engine is None else own_groups(engine, caller, catalogue)
    except Unreachable:
        own = None
    return shipped.removesuffix(NO_OWN) + NO_OWN.replace(b"null", to_bytes(own))


Key = tuple[Quantity, str, str, bool | None]


def _key(one: Judged) -> Key:
    return one.quantity, one.row.text("source_key"), one.figure_class, one.is_moe


def _moe_of(step_class: str) -> bool | None:
    return None if step_class == EVERY else step_class == "MoE"


def _group(judged: Sequence[Judged], key: Key, steps: StepJudge, left_out: float | None) -> Group:
    quantity, source_key, figure_class, moe = key
    sources = {one.row.text("source_key") for one in judged if one.comparison is not None}
    constants = sorted({name for source in sources for name in constants_read_off(source, quantity, figure_class)})
    return Group(
        **_sized(judged, quantity),
        quantity=quantity,
        source_key=source_key,
        memory_class=figure_class,
        moe=moe,
        in_sample=bool(constants),
        constants=tuple(constants),
        coverage80_left_out_fraction=left_out,
        full_config=Sized(**_sized([one for one in judged if one.is_told], quantity)),
        step=steps.scores_of(judged),
    )


Kind = tuple[str, str, str]
"""What errors of different sources are compared by: the quantity, and the class of stack and model."""

ResidualsByKind = dict[Kind, dict[str, list[float]]]
"""Residuals by kind, and by source within it."""


def _kind(one: Judged) -> Kind:
    return one.quantity, *class_of(one.stack, is_sparse=one.is_moe)


def _residuals_by_kind(judged: Sequence[Judged]) -> ResidualsByKind:
    """Residuals of bytes by kind and source; those of steps are in no kind."""
    found: ResidualsByKind = {}
    for one in judged:
        if one.quantity != "step" and (comparison := one.comparison) is not None:
            sources = found.setdefault(_kind(one), {})
            sources.setdefault(one.row.text("source_key"), []).append(comparison.residual_fraction)
    return found


def _left_out_fraction(residuals: ResidualsByKind, own: Sequence[Judged]) -> float | None:
    """Share of a group's bytes inside the interval that the other sources of its kind ask for; None for steps."""
    pooled: dict[str, list[float]] = {}
    for kind in {_kind(one) for one in own if one.comparison is not None}:
        for source, found in residuals.get(kind, {}).items():
            pooled.setdefault(source, []).extend(found)
    return left_out_fraction(pooled, own[0].row.text("source_key"))


def _sized(judged: Sequence[Judged], quantity: Quantity) -> dict[str, Any]:
    border = LARGE_FROM_BYTES.get(quantity)
    small = [one for one in judged if border and one.measured is not None and one.measured < border]
    large = [one for one in judged if not border or one.measured is None or one.measured >= border]
    return {
        **_figures(judged),
        "large_from_bytes": border,
        "large": Figures(**_figures(large)),
        "small": Figures(**_figures(small)),
    }


def _figures(judged: Sequence[Judged]) -> dict[str, Any]:
    compared = [comparison for one in judged if (comparison := one.comparison) is not None]
    are_steps = any(one.quantity == "step" for one in judged)
    no_bytes = {"median_bytes": None, "p95_bytes": None}
    reasons = Counter(one.reason for one in judged if one.reason and not one.ran_out)
    return {
        "rows": len(judged),
        **(asdict(errors_of(compared)) | no_bytes if are_steps else asdict(score(compared))),
        "ran_out": sum(one.ran_out for one in judged),
        "not_expressible": dict(sorted(reasons.items())),
    }
