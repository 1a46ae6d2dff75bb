"""Lists of the catalogue, page by page, whole, or one row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from service.catalogue import Catalogue, ClusterRow, GpuRow, ModelRow, PriceRow, RateCardRow, RegionRow, Row, key_of
from service.catalogue.indexes import normal
from service.errors import NotFound, UnknownName
from service.store.engine import utc_text
from service.store.history import History
from service.store.keys import Caller
from service.tabular.lists import Column, Listed, Record, as_record, columns_of
from service.validation.reading import fields_of


@dataclass(frozen=True, slots=True)
class Listing:
    """One list of the catalogue."""

    row: type
    key: Column
    """What a row is read by; rows are listed in its order."""
    rows: Callable[[Catalogue], Iterable[Any]]
    find: Callable[[Catalogue, str], Any]
    """The row that a name means."""
    is_in_order: bool = False
    """Whether the catalogue keeps the rows in the order of their keys."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns, the key first."""
        return (self.key, *(column for column in columns_of(self.row) if column.name != self.key.name))


def listed(listing: Listing, catalogue: Catalogue) -> Listed:
    """A list of the catalogue, to be shown as pages or as a table."""
    meanings = {"gpu": partial(_gpus_meant, catalogue)}
    return Listed(listing.columns, listing.rows(catalogue), meanings, is_in_order=listing.is_in_order)


def read_row(listing: Listing, catalogue: Catalogue, name: str) -> Record:
    try:
        return record_of(listing, listing.find(catalogue, name))
    except UnknownName as error:
        raise NotFound(f"{error.problems[0].message}; {error.problems[0].fix}") from None


def record_of(listing: Listing, row: Row) -> Record:
    return as_record(listing.columns, row)


def _find_price(catalogue: Catalogue, name: str) -> PriceRow:
    found = catalogue.price_index.rows.get(name)
    if found is None:
        raise NotFound("the catalogue holds no price of this id; GET /v1/prices lists the ids")
    return found


def _gpus_meant(catalogue: Catalogue, name: str) -> tuple[str, ...]:
    """GPUs with this name; a filter need not choose one."""
    return catalogue.gpu_index.slugs.get(normal(name)) or (catalogue.find_gpu(name, "gpu").row.slug,)


_SLUG = Column("slug", attrgetter("slug"), {"type": "string", "description": "Catalogue name."})
_ID = Column("id", attrgetter("id"), {"type": "string", "description": "What this price is read by."})

LISTINGS: Mapping[str, Listing] = {
    "models": Listing(ModelRow, _SLUG, lambda view: view.models.values(), lambda view, name: view.find_model(name).row),
    "gpus": Listing(GpuRow, _SLUG, lambda view: view.gpus.values(), lambda view, name: view.find_gpu(name).row),
    "clusters": Listing(
        ClusterRow, _SLUG, lambda view: view.clusters.values(), lambda view, name: view.find_cluster(name).row
    ),
    "prices": Listing(PriceRow, _ID, lambda view: view.prices, _find_price, is_in_order=True),
    "rate-cards": Listing(
        RateCardRow, _SLUG, lambda view: view.rate_cards.values(), lambda view, name: view.find_rate_card(name).row
    ),
    "regions": Listing(
        RegionRow, _SLUG, lambda view: view.regions.values(), lambda view, name: view.find_region(name).row
    ),
}

NEWEST_FIRST = "-number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of the catalogue."""

    number: int
    """Its number, from 1 without a gap."""
    made_at: str
    """When it was made, RFC 3339 in UTC."""
    catalogue: str
    """Digest of what the caller sees of the catalogue after it: what answers name as versions.catalogue, and `rev` asks
    for."""
    owner: str
    """Who made it: catalogue for what a version of the service ships, else a team."""
    summary: str
    """What was changed."""


COLUMNS = columns_of(Revision)


def listed_revisions(history: History, caller: Caller) -> Listed:
    """Changes of the catalogue that a caller sees."""
    changes = history.changes(caller.owner, of_all=caller.sees_all)
    revisions = (Revision(**(fields_of(change) | {"made_at": utc_text(change.made_at)})) for change in changes)
    return Listed(COLUMNS, revisions, sort=NEWEST_FIRST)


def read_version(listing: Listing, history: History, caller: Caller, name: str, revision: int) -> Record:
    try:
        key = key_of(listing.find(history.view(caller.owner), name))
    except (UnknownName, NotFound):
        key = name
    found = history.version(listing.row, key, revision, lambda row: row.is_for_everyone or caller.may_access(row.owner))
    if found is None:
        raise NotFound("no row of this name has or had a version of this revision")
    return record_of(listing, found)
