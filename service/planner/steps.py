"""Steps of a long search, which stops between two estimates so that other requests are answered meanwhile."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

Outcome = TypeVar("Outcome")
Steps: TypeAlias = Generator[int | None, None, Outcome]
"""A search that stops between one estimate and the next. One of many questions yields their number first."""


def outcome(steps: Steps[Outcome]) -> Outcome:
    """The result of a search, run without a stop."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Outcome = done.value
            return result
