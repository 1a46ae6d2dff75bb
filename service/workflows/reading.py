"""What reading one part of a request yields: the noun, and what had to be assumed to read it."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from service.catalogue.names import Found

Noun = TypeVar("Noun")


@dataclass(frozen=True, slots=True)
class Read(Generic[Noun]):
    """One noun read from a request."""

    noun: Noun
    """The noun itself."""
    assumptions: tuple[str, ...] = ()
    """What was assumed while reading it."""
    warnings: tuple[str, ...] = ()
    """What the caller should look at."""


def assumed(found: Found[Any]) -> tuple[str, ...]:
    """What the catalogue had to assume to choose a row.

    Args:
        found: the row it chose

    Returns:
        the assumption, if there was one
    """
    return () if found.assumption is None else (found.assumption,)
