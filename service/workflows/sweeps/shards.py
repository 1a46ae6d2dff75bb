"""In which pieces is a sweep worked out? Rows behind each other, so many that starting a piece costs little."""

from typing import NamedTuple

from service.workflows.sweep_label import SweepKind

SHARD_ROWS: dict[SweepKind, int] = {"estimate": 20_000, "plan": 10}
"""Rows of one piece. Source: a choice; seconds of one core, where a process takes half a second to start."""


class Shard(NamedTuple):
    """Rows behind each other."""

    number: int
    """Which piece, from 0."""
    first: int
    """Its first row."""
    rows: int
    """How many rows."""


def shards_of(rows: int, each: int) -> tuple[Shard, ...]:
    """The pieces of a sweep; every row is in exactly one.

    Args:
        rows: rows of the sweep [1]
        each: rows of one piece [1]

    Returns:
        the pieces, in order

    >>> [(shard.first, shard.rows) for shard in shards_of(25, 10)]
    [(0, 10), (10, 10), (20, 5)]
    """
    firsts = range(0, rows, each)
    return tuple(Shard(number, first, min(each, rows - first)) for number, first in enumerate(firsts))
