"""Columns of a sweep's table, and the path of each number in an estimate.

Every number is a double, as in JSON and cells: 1 and 0 for true and false.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from service.answers.names import WIRE_NAMES
from service.estimator.answer import Estimate, Interval
from service.features.estimates.metrics import COLUMNS, FITS, Metric, fits, number_named
from service.features.sweeps.axes import Sweep, SweepKind

ColumnType = Literal["int64", "double", "string"]
"""Column types by their Arrow names."""

Cell = str | int | float | None

PLAN_NUMBERS = ("data", "tensor", "context", "pipeline", "virtual_pipeline", "expert", "zero_stage", "micro_batch")
"""Numbers of a plan in the default columns."""

DEFAULT_COLUMNS: Mapping[SweepKind, tuple[str, ...]] = {
    "estimate": tuple(COLUMNS),
    "plan": (*PLAN_NUMBERS, *COLUMNS),
}
"""Default numbers of a row."""


class SweepColumn(NamedTuple):
    """One column of the table of a sweep."""

    name: str
    """Its name."""
    type: ColumnType
    """Type of its cells, all nullable."""


POSITIONS: Final = ("model_index", "cluster_index", "layout_index", "recipe_index", "price_index")
"""Columns with the positions of the combined items."""

FIRST: Final[Sequence[SweepColumn]] = (
    SweepColumn("row", "int64"),
    *(SweepColumn(name, "int64") for name in POSITIONS),
    SweepColumn("model", "string"),
    SweepColumn("cluster", "string"),
    SweepColumn("gpu", "string"),
    SweepColumn("gpus", "int64"),
    SweepColumn("usd_per_gpu_hour", "double"),
    SweepColumn("status", "int64"),
    SweepColumn("verdict", "string"),
)
"""Columns before the numbers."""

OF_PLANS: Final[Sequence[SweepColumn]] = (
    SweepColumn("recompute", "string"),
    SweepColumn("schedule", "string"),
    SweepColumn("layouts_generated", "int64"),
    SweepColumn("layouts_scored", "int64"),
    SweepColumn("layouts_fitting", "int64"),
)
"""Further columns of a plan, after its numbers."""

LAST: Final[Sequence[SweepColumn]] = (SweepColumn("reason", "string"),)
"""Last column: the reason for missing numbers."""


def reserved_names(kind: SweepKind) -> tuple[str, ...]:
    """Names that numbers may not have, because every row has them."""
    return tuple(column.name for column in (*FIRST, *(OF_PLANS if kind == "plan" else ()), *LAST))


def columns_of(sweep: Sweep) -> tuple[SweepColumn, ...]:
    """The columns of the table of a sweep; ends of an interval by the names that cells give them."""
    first = FIRST if sweep.axes.picked is None else [column for column in FIRST if column.name not in POSITIONS]
    numbers = [SweepColumn(name, "double") for number in numbers_of(sweep) for name in number.names]
    return (*first, *numbers, *(OF_PLANS if sweep.kind == "plan" else ()), *LAST)


@dataclass(frozen=True, slots=True)
class Number:
    """One number of each row."""

    names: tuple[str, ...]
    """Its columns: one, or three for an interval."""
    read: Callable[[Estimate], Any]
    """Reader of the value in an estimate: a number, an interval or a boolean; None if unknown."""

    def cells(self, estimate: Estimate) -> tuple[float | None, ...]:
        """Its cells."""
        found = self.read(estimate)
        if len(self.names) == 1:
            return (None if found is None else float(found),)
        return (found.low, found.value, found.high) if isinstance(found, Interval) else (None, None, None)


def numbers_of(sweep: Sweep) -> tuple[Number, ...]:
    """The numbers of each row of a sweep."""
    metrics = {name: number_named("columns", name) for name in sweep.columns}
    return tuple(
        Number((f"{name}.low", name, f"{name}.high") if metric.is_interval else (name,), reader_of(metric))
        for name, metric in metrics.items()
    )


def reader_of(metric: Metric) -> Callable[[Estimate], Any]:
    """Reader of a number in an estimate, without serializing the whole estimate."""
    if metric.path == (FITS,):
        return lambda estimate: fits(estimate.verdict)
    fields = {wire: name for name, wire in WIRE_NAMES.items()}
    names = [fields.get(step, step) for step in metric.path]
    if not metric.has_items and not any(hasattr(str, name) for name in names):
        return partial(_attribute, attrgetter(".".join(names)))
    return partial(_follow, tuple(zip(metric.path, names, strict=True)))


def _attribute(read: Callable[[Estimate], Any], estimate: Estimate) -> Any:
    """Number at the end of an attribute path; None if a step is missing."""
    try:
        return read(estimate)
    except AttributeError:
        return None


def _follow(steps: Sequence[tuple[str, str]], estimate: Estimate) -> Any:
    """Number at the end of a path of fields and items; None if a step is missing."""
    value: Any = estimate
    for step, attribute in steps:
        if value is None or isinstance(value, str):
            return None
        value = _item(value, step) if isinstance(value, tuple | list) else getattr(value, attribute, None)
    return value


def _item(items: Sequence[Any], step: str) -> Any:
    """Item of a list by position or kind; None if there is none."""
    if step.isdecimal():
        return items[int(step)] if int(step) < len(items) else None
    return next((item for item in items if getattr(item, "kind", None) == step), None)
