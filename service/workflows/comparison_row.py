"""What does one row of a comparison say: which cluster, at which price, what is answered, or why nothing is?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.answers.rows import ComparedRow, RowProblem
from service.errors import Problem

ANSWERED: Final = 200
REFUSED: Final = 422
"""Status of a row, as POST /v1/estimates would give it."""


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
