"""Steps of a long search, which yields between two estimates so that other requests run meanwhile."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

Outcome = TypeVar("Outcome")
Steps: TypeAlias = Generator[int | None, None, Outcome]
"""A search that yields between two estimates; a search over many questions yields their number first."""


def outcome(steps: Steps[Outcome]) -> Outcome:
    """Result of a search, run without interruption."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Outcome = done.value
            return result
