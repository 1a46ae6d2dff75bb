"""How much of a sweep a test tries: a fixed sample under `pytest`, all of it in `.ci/proof sweeps`."""

import os
from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import TypeVar

WHOLE = os.environ.get("TRAINCOST_TEST_WHOLE") == "1"
"""Whether everything is tried."""

Case = TypeVar("Case")


def amount(some: int, every: int) -> int:
    """How many cases a run takes: `some` of them, or `every` one where everything is tried."""
    return every if WHOLE else some


def sample(cases: Sequence[Case], count: int) -> list[Case]:
    """So many of the cases, evenly spread, the first and the last among them; all of them in `.ci/proof sweeps`."""
    if WHOLE or count >= len(cases):
        return list(cases)
    step = (len(cases) - 1) / max(1, count - 1)
    return [cases[round(place * step)] for place in range(count)]


def some_of_each(cases: Sequence[Case], kinds: Sequence[Hashable], count: int) -> list[Case]:
    """So many of the cases, those of every kind in turn; all of them in `.ci/proof sweeps`."""
    if WHOLE or count >= len(cases):
        return list(cases)
    places = sorted(range(len(cases)), key=lambda place: (str(kinds[place]), place))
    turns = [
        (turn, place)
        for _, group in groupby(places, key=lambda place: str(kinds[place]))
        for turn, place in enumerate(group)
    ]
    return [cases[place] for _, place in sorted(turns)[: max(count, len(set(kinds)))]]
