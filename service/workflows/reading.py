"""What reading one part of a request yields: the noun, and what had to be assumed to read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from service.catalogue import (
    SHIPPED,
    CalibrationRow,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
)
from service.catalogue.names import Found
from service.catalogue.provenance import Provenance

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
    """What the catalogue had to assume to choose a row, and whose row that is if it is no shipped one.

    Args:
        found: the row it chose

    Returns:
        the assumptions, if there were any
    """
    chosen = () if found.assumption is None else (found.assumption,)
    return (*chosen, *origin_of(getattr(found, "row", None)))


def origin_of(row: object) -> tuple[str, ...]:
    """Whose row an answer rests on, with its source and date; nothing for a shipped one."""
    noun = CUSTOM.get(type(row))
    if noun is None or not isinstance(row, Provenance) or row.owner == SHIPPED:
        return ()
    return (f"{noun} {_key(row)} is a row of {row.owner}, as of {row.as_of}; its source: {row.source}",)


def promoted(*rows: object) -> tuple[str, ...]:
    """Warnings of rows that an owner wrote and an admin promoted to everyone."""
    return tuple(
        f"{CUSTOM[type(row)]} {_key(row)} is a row of {row.owner} that an admin promoted to everyone"
        for row in rows
        if type(row) in CUSTOM and isinstance(row, Provenance) and row.owner != SHIPPED and row.is_for_everyone
    )


def _key(row: Any) -> str:
    return str(row.gpu if isinstance(row, CalibrationRow) else row.provider if isinstance(row, PriceRow) else row.slug)


CUSTOM: Mapping[type, str] = {
    ModelRow: "model",
    GpuRow: "gpu",
    ClusterRow: "cluster",
    PriceRow: "the price of",
    RateCardRow: "rate card",
    RegionRow: "region",
    CalibrationRow: "the calibration of",
}
"""Kinds of rows that an answer may rest on, in words."""
