"""How does a long search let others be answered meanwhile? It stops between one estimate and the next."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

Found = TypeVar("Found")
Steps: TypeAlias = Generator[None, None, Found]
"""A search that stops between one estimate and the next."""


def outcome(steps: Steps[Found]) -> Found:
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
            found: Found = done.value
            return found
