"""Columns of a sweep's table, and the place of each number in an estimate.

Every number is a double, as JSON and cells have it: 1 and 0 for true and false.
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
"""Types of columns, by the names that Arrow gives them."""

Cell = str | int | float | None

CHOSEN = ("data", "tensor", "context", "pipeline", "virtual_pipeline", "expert", "zero_stage", "micro_batch")
"""What of a plan stands in each row where the caller names no columns."""

DEFAULT_COLUMNS: Mapping[SweepKind, tuple[str, ...]] = {
    "estimate": tuple(COLUMNS),
    "plan": (*CHOSEN, *COLUMNS),
}
"""Numbers of a row where the caller names none."""


class SweepColumn(NamedTuple):
    """One column of the table of a sweep."""

    name: str
    """What it is called."""
    type: ColumnType
    """What its cells are; each may be null."""


POSITIONS: Final = ("model_index", "cluster_index", "layout_index", "recipe_index", "price_index")
"""Columns that tell which items of the lists a row combines."""

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
"""What stands before the numbers."""

OF_PLANS: Final[Sequence[SweepColumn]] = (
    SweepColumn("recompute", "string"),
    SweepColumn("schedule", "string"),
    SweepColumn("layouts_generated", "int64"),
    SweepColumn("layouts_scored", "int64"),
    SweepColumn("layouts_fitting", "int64"),
)
"""What else is said of a plan, behind its numbers."""

LAST: Final[Sequence[SweepColumn]] = (SweepColumn("reason", "string"),)
"""What stands last: why there are no numbers."""


def taken_by(kind: SweepKind) -> tuple[str, ...]:
    """Names that no number of a row may have, because every row has them anyway."""
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
    found_in: Callable[[Estimate], Any]
    """What an estimate holds there: a number, an interval, a truth; None where it is not known."""

    def cells(self, estimate: Estimate) -> tuple[float | None, ...]:
        """Its cells."""
        found = self.found_in(estimate)
        if len(self.names) == 1:
            return (None if found is None else float(found),)
        return (found.low, found.value, found.high) if isinstance(found, Interval) else (None, None, None)


def numbers_of(sweep: Sweep) -> tuple[Number, ...]:
    """The numbers of each row of a sweep."""
    metrics = {name: number_named("columns", name) for name in sweep.columns}
    return tuple(
        Number((f"{name}.low", name, f"{name}.high") if metric.is_interval else (name,), found_by(metric))
        for name, metric in metrics.items()
    )


def found_by(metric: Metric) -> Callable[[Estimate], Any]:
    """How a number is taken from an estimate, without spelling the whole estimate as JSON."""
    if metric.path == (FITS,):
        return lambda estimate: fits(estimate.verdict)
    spelled = {wire: name for name, wire in WIRE_NAMES.items()}
    names = [spelled.get(step, step) for step in metric.path]
    if not metric.has_items and not any(hasattr(str, name) for name in names):
        return partial(_attribute, attrgetter(".".join(names)))
    return partial(_followed, tuple(zip(metric.path, names, strict=True)))


def _attribute(read: Callable[[Estimate], Any], estimate: Estimate) -> Any:
    """A number at the end of a path of attributes; None where something on the way is not known."""
    try:
        return read(estimate)
    except AttributeError:
        return None


def _followed(steps: Sequence[tuple[str, str]], estimate: Estimate) -> Any:
    """A number at the end of a path of fields and items; None where something on the way is not known."""
    value: Any = estimate
    for step, attribute in steps:
        if value is None or isinstance(value, str):
            return None
        value = _item(value, step) if isinstance(value, tuple | list) else getattr(value, attribute, None)
    return value


def _item(items: Sequence[Any], step: str) -> Any:
    """An item of a list, by its position or by its kind; None where there is no such item."""
    if step.isdecimal():
        return items[int(step)] if int(step) < len(items) else None
    return next((item for item in items if getattr(item, "kind", None) == step), None)
