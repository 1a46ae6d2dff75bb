"""What does one row of a comparison say: which cluster, at which price, what is answered, or why nothing is?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from service.errors import Problem
from service.estimator.memory_parts import Verdict
from service.estimator.noun import SPOKEN

ANSWERED: Final = 200
REFUSED: Final = 422
"""Status of a row, as POST /v1/estimates would give it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem:
    """One thing that keeps a row from being answered."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    pointer: str
    """JSON pointer of the field in the body."""
    code: str
    """Broken rule, stable."""
    message: str
    """What is wrong and why it matters."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCluster:
    """A cluster at a price, out of those that were listed."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    cluster: str | None
    """What it is called; null where nobody named it."""
    gpu: str
    """Catalogue name of its GPU."""
    gpus: int
    """How many of them."""
    usd_per_gpu_hour: float | None
    """Price of one GPU for one hour; null without a price, or where none is rented."""
    provider: str | None
    """Who rents the GPUs out; null unless the catalogue's price is taken."""
    region: str | None
    """Where, in the provider's spelling."""
    price_model: str | None
    """On what terms."""
    instance_type: str | None
    """Which machine, in the provider's spelling."""
    rate_card: str | None
    """The team's own rate card; null unless its rate is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow(ChosenCluster):
    """The job on one cluster at one price."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    price_as_of: str | None
    """Date of the price; null where it is not known."""
    status: Literal[200, 422]
    """200: answered. 422: refused, for the reason beside it."""
    verdict: Verdict | None
    """Does it fit? Numbers of a job that does not are hypothetical; null where the row is refused."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Every number that was asked for; in the answer they stand in the row itself."""
    reason: str | None
    """Why the row is refused, in one line of at most 255 characters; null where it is answered."""
    errors: tuple[RowProblem, ...]
    """The same, one entry for each thing to mend; empty where it is answered."""
    warnings: tuple[str, ...]
    """What to look at."""
    assumptions: tuple[str, ...]
    """What was assumed."""
    id: str | None
    """Of the estimate; null where the row is refused."""


FIRST = (
    "cluster", "gpu", "gpus", "usd_per_gpu_hour", "provider", "region", "price_model", "instance_type", "rate_card",
    "price_as_of", "status", "verdict",
)  # fmt: skip
"""What stands before the numbers."""

LAST = ("reason", "errors", "warnings", "assumptions", "id")
"""What stands behind them."""

IN_WORDS = "errors"
"""What a table leaves out, because `reason` says it."""


def mended(problem: Problem) -> RowProblem:
    """A problem as a row tells it.

    Args:
        problem: what is wrong, by the dotted path of its field in the request

    Returns:
        the same with a JSON pointer
    """
    pointer = "".join(f"/{step}" for step in problem.field.split(".") if step)
    return RowProblem(pointer=pointer, code=problem.code, message=problem.message, fix=problem.fix)


def record_of(row: ComparedRow) -> dict[str, Any]:
    """A row as the JSON object that shows it.

    Args:
        row: the row

    Returns:
        its values by name, its numbers among them
    """
    return {
        **{name: getattr(row, name) for name in FIRST},
        **row.numbers,
        **{name: getattr(row, name) for name in LAST},
    }


def cells_of(row: ComparedRow, intervals: Mapping[str, bool]) -> Sequence[Any]:
    """A row as the cells of a table.

    Args:
        row: the row
        intervals: its numbers, and whether each has a lower and an upper end

    Returns:
        a value for each column of `columns_of`; None for an empty cell
    """
    numbers: list[Any] = []
    for name, is_interval in intervals.items():
        number = row.numbers.get(name)
        ends = number if isinstance(number, Mapping) else {}
        numbers += [ends.get(end) for end in ("low", "value", "high")] if is_interval else [number]
    last = [getattr(row, name) for name in LAST if name != IN_WORDS]
    return [*(getattr(row, name) for name in FIRST), *numbers, *last]


def columns_of(intervals: Mapping[str, bool]) -> list[str]:
    """What the columns of a table are called; ends of an interval by the names that cells give them.

    Args:
        intervals: numbers of its rows, and whether each has a lower and an upper end

    Returns:
        names of columns

    >>> columns_of({"days": True, "usable_bytes": False})[len(FIRST):-len(LAST) + 1]
    ['days.low', 'days', 'days.high', 'usable_bytes']
    """
    numbers = [
        name
        for number, is_interval in intervals.items()
        for name in ((f"{number}.low", number, f"{number}.high") if is_interval else (number,))
    ]
    return [*FIRST, *numbers, *(name for name in LAST if name != IN_WORDS)]
