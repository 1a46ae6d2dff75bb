"""How does a long search let others be answered meanwhile? It stops between one estimate and the next."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

Outcome = TypeVar("Outcome")
Steps: TypeAlias = Generator[int | None, None, Outcome]
"""A search that stops between one estimate and the next. One that is many questions says, before it answers the first,
how many."""


def outcome(steps: Steps[Outcome]) -> Outcome:
    """What a search leads to, when nobody has to be let through.

    Args:
        steps: the search

    Returns:
        its result
    """
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Outcome = done.value
            return found
