"""Result of reading one part of a request: the dataclass, its assumptions, warnings and catalogue rows."""

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
from service.catalogue.indexes import Found
from service.catalogue.rows import Purchase

Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Spec]):
    """One object read from a request."""

    spec: Spec
    """The object itself."""
    assumptions: tuple[str, ...] = ()
    """Assumptions made while reading it."""
    warnings: tuple[str, ...] = ()
    """Warnings for the caller."""
    sources: tuple[Source, ...] = ()
    """Catalogue rows that it uses."""


def assumptions_of(match: Found[Any]) -> tuple[str, ...]:
    """Assumptions of a catalogue lookup."""
    return () if match.assumption is None else (match.assumption,)


def with_rows(parsed: Parsed[Spec], catalogue: Catalogue, *rows: Row | None) -> Parsed[Spec]:
    """An object with the catalogue rows that it uses as sources (custom rows, all prices), and notes on them."""
    sources = tuple(source_of(row) for row in rows if row is not None and (type(row) in PRICES or row.owner != SHIPPED))
    return with_sources(parsed, catalogue, sources) if sources else parsed


def with_sources(parsed: Parsed[Spec], catalogue: Catalogue, sources: tuple[Source, ...]) -> Parsed[Spec]:
    """An object with more sources, and with notes on custom rows among them."""
    notes = (
        f"{_described(one)}, as of {one.as_of}; its source: {one.source}" for one in sources if one.owner != SHIPPED
    )
    return replace(
        parsed,
        assumptions=(*parsed.assumptions, *notes),
        warnings=(*warnings_of(sources, catalogue), *parsed.warnings),
        sources=(*parsed.sources, *sources),
    )


def warnings_of(sources: Iterable[Source], catalogue: Catalogue) -> tuple[str, ...]:
    """Warnings about rows of another owner that an admin promoted to everyone."""
    others = (one for one in sources if one.owner not in (SHIPPED, catalogue.viewer) and one.scope == "everyone")
    return tuple(f"{_described(one)} that an admin promoted to everyone" for one in others)


def source_of(row: Row) -> Source:
    """A catalogue row as a source of an answer."""
    return Source(
        kind=KINDS[type(row)],
        name=row.calibration.id if isinstance(row, CalibrationRow) else key_of(row),
        owner=row.owner,
        scope=row.holds_for,
        source=row.source,
        as_of=row.as_of,
    )


def purchase_of(row: GpuRow, purchase: Purchase) -> Source:
    """The purchase price of a GPU as a source of an answer."""
    return replace(source_of(row), kind="price", source=purchase.source, as_of=purchase.as_of)


def _described(source: Source) -> str:
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
"""Source kinds of catalogue rows."""

PRICES = (PriceRow, RateCardRow)
"""Row kinds whose shipped rows are sources too."""
