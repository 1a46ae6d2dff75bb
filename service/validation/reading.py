"""Results of reading one part of a request: the dataclass, the assumptions, and the rows it rests on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from service.answers.estimates import Source, SourceKind
from service.catalogue import (
    SHIPPED,
    CalibrationRow,
    Catalogue,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    Row,
    key_of,
)
from service.catalogue.names import Found
from service.catalogue.rows import Purchase

Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class Read(Generic[Spec]):
    """One object read from a request."""

    spec: Spec
    """The object itself."""
    assumptions: tuple[str, ...] = ()
    """What was assumed while reading it."""
    warnings: tuple[str, ...] = ()
    """What the caller should look at."""
    sources: tuple[Source, ...] = ()
    """Rows that it rests on, as answers name them."""


def assumed(found: Found[Any]) -> tuple[str, ...]:
    """What the catalogue had to assume to choose a row."""
    return () if found.assumption is None else (found.assumption,)


def resting_on(read: Read[Spec], catalogue: Catalogue, *rows: Row | None) -> Read[Spec]:
    """An object with the rows that it rests on, as answers name them, and with their notes on those."""
    named = tuple(source_of(row) for row in rows if row is not None and (type(row) in PRICES or row.owner != SHIPPED))
    return with_sources(read, catalogue, named) if named else read


def with_sources(read: Read[Spec], catalogue: Catalogue, sources: tuple[Source, ...]) -> Read[Spec]:
    """An object with more sources, and with notes on those."""
    notes = (f"{_called(one)}, as of {one.as_of}; its source: {one.source}" for one in sources if one.owner != SHIPPED)
    return replace(
        read,
        assumptions=(*read.assumptions, *notes),
        warnings=(*warnings_of(sources, catalogue), *read.warnings),
        sources=(*read.sources, *sources),
    )


def warnings_of(sources: Iterable[Source], catalogue: Catalogue) -> tuple[str, ...]:
    """Warnings of rows that another owner wrote and an admin promoted to everyone."""
    others = (one for one in sources if one.owner not in (SHIPPED, catalogue.asker) and one.scope == "everyone")
    return tuple(f"{_called(one)} that an admin promoted to everyone" for one in others)


def source_of(row: Row) -> Source:
    """How answers name a row."""
    return Source(
        kind=KINDS[type(row)],
        name=row.calibration.id if isinstance(row, CalibrationRow) else key_of(row),
        owner=row.owner,
        scope=row.holds_for,
        source=row.source,
        as_of=row.as_of,
    )


def purchase_of(row: GpuRow, bought: Purchase) -> Source:
    """How answers name the price at which a GPU was bought."""
    return replace(source_of(row), kind="price", source=bought.source, as_of=bought.as_of)


def _called(source: Source) -> str:
    return f"{source.kind.replace('_', ' ')} {source.name} is a row of {source.owner}"


KINDS: Mapping[type[Row], SourceKind] = {
    ModelRow: "model",
    GpuRow: "gpu",
    ClusterRow: "cluster",
    PriceRow: "price",
    RateCardRow: "rate_card",
    RegionRow: "region",
    CalibrationRow: "calibration",
}
"""Kinds of rows that an answer may rest on, as it names them."""

PRICES = (PriceRow, RateCardRow)
"""Kinds of rows that are named even where they are shipped."""
