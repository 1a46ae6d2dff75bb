"""Indexes and digests of rows, renewed after a change without a full rebuild, and regions by name."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TypeVar

from service.catalogue.names import Entry, Found, NameIndex, forms_of
from service.catalogue.provenance import SHIPPED, UnsoundFact
from service.catalogue.rows import (
    CalibrationRow,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    Row,
    key_of,
)
from service.errors import Problem, UnknownName, did_you_mean, nearest

Named = ModelRow | GpuRow | ClusterRow | RateCardRow
"""A row that is found by name."""
NamedRow = TypeVar("NamedRow", ModelRow, GpuRow, ClusterRow, RateCardRow)
AnyRow = TypeVar("AnyRow", bound=Row)
Key = tuple[type, str]
"""Kind and identity of a row."""
Change = Mapping[Key, Row | None]
"""New rows by key; None for a removed row."""


def index_of(kind: str, rows: Iterable[NamedRow]) -> NameIndex[NamedRow]:
    """The index of rows by name."""
    return NameIndex.of(kind, map(_entry, rows))


def renewed(index: NameIndex[NamedRow], kind: type[NamedRow], change: Change) -> NameIndex[NamedRow]:
    """The index of rows by name after a change."""
    if all(changed is not kind for changed, _ in change):
        return index
    return index_of(index.kind, rows_after(index.rows, kind, change).values())


def rows_after(held: Mapping[str, AnyRow], kind: type[AnyRow], change: Change) -> Mapping[str, AnyRow]:
    """Rows of one kind after a change."""
    if all(changed is not kind for changed, _ in change):
        return held
    after = dict(held)
    for (changed, key), row in change.items():
        if changed is kind and row is None:
            del after[key]
        elif isinstance(row, kind):
            after[key] = row
    return after


def of_kind(rows: Iterable[Row], kind: type[AnyRow]) -> list[AnyRow]:
    """Rows of one kind among rows of any."""
    return [row for row in rows if isinstance(row, kind)]


def calibrations_by_gpu(calibrations: Iterable[CalibrationRow]) -> dict[str, CalibrationRow]:
    """Calibrations by the GPU that they hold for, in the order of the GPUs."""
    held: dict[str, CalibrationRow] = {}
    for row in calibrations:
        if row.gpu in held:
            raise UnsoundFact(f"two calibrations hold for gpu {row.gpu}")
        held[row.gpu] = row
    return dict(sorted(held.items()))


def changed_of(change: Change, kind: type[AnyRow]) -> dict[str, AnyRow | None]:
    """The part of a change for one kind of row."""
    return {key: row if isinstance(row, kind) else None for (changed, key), row in change.items() if changed is kind}


def digests_of(rows: Iterable[Row]) -> dict[Key, bytes]:
    """A digest of each row, in the order of the digests: a later change leaves little to sort."""
    digests = {(type(row), key_of(row)): digest_of(row) for row in rows}
    return {key: digests[key] for key in sorted(digests, key=digests.__getitem__)}


def digest_of(row: Row) -> bytes:
    """Digest of a row's facts; for a custom row also of its owner and scope, because answers name them."""
    whose = "" if row.owner == SHIPPED else f" {row.owner!r} {row.scope}"
    return sha256(f"{row!r}{whose}".encode()).digest()


def forms_of_row(row: Row) -> tuple[str, ...]:
    """Every name of a row in normal form; none where only its key finds it."""
    if isinstance(row, PriceRow | RegionRow | CalibrationRow):
        return ()
    named = (name for names in names_of(row).values() for name in names)
    return forms_of(row.slug, *named, *getattr(row, "default_for", ()))


def revision_of(digests: Mapping[Key, bytes]) -> str:
    """Digest of a set of rows."""
    return sha256(b"".join(sorted(digests.values()))).hexdigest()[:12]


def names_of(row: Named) -> Mapping[str, tuple[str, ...]]:
    """Every name of a row, beside its slug."""
    return {
        "name": (row.name,),
        "aliases": getattr(row, "aliases", ()),
        "hugging_face_id": (row.hugging_face_id,) if isinstance(row, ModelRow) and row.hugging_face_id else (),
    }


def _entry(row: NamedRow) -> Entry[NamedRow]:
    aliases = tuple(name for names in names_of(row).values() for name in names)
    return Entry(slug=row.slug, aliases=aliases, default_for=getattr(row, "default_for", ()), row=row)


def gpus_of(row: Row) -> tuple[str, ...]:
    """The GPUs that a row refers to."""
    if isinstance(row, ClusterRow):
        return (row.cluster.gpu,)
    if isinstance(row, PriceRow | CalibrationRow):
        return (row.gpu,)
    return tuple(rate.gpu for rate in row.rates) if isinstance(row, RateCardRow) else ()


def regions_by_slug(regions: Iterable[RegionRow]) -> dict[str, RegionRow]:
    """Regions by slug, in the order of the slugs."""
    held: dict[str, RegionRow] = {}
    for row in regions:
        if row.slug in held:
            raise UnsoundFact(f"two rows are region {row.slug}")
        held[row.slug] = row
    return dict(sorted(held.items()))


def find_region(regions: Mapping[str, RegionRow], name: str, field: str) -> Found[RegionRow]:
    """The region that a name means.

    A machine's region needs its cloud, because us-east1 of one is not us-east-1 of another.
    """
    wanted = name.casefold()
    row = regions.get(name) or next((row for row in regions.values() if wanted in names_of_region(row)), None)
    if row is not None:
        return Found(row, None)
    near = nearest(wanted, [row.slug for row in regions.values()])
    some = (
        "known are, for example, gcp:us-central1, aws:us-east-1, azure:eastus, USA or world; GET /v1/regions lists all"
    )
    message = "the catalogue holds no region of this name, so nothing is known of its electricity"
    fix = f"{did_you_mean(near) or some + ';'} or give grid_kg_co2e_per_kwh"
    raise UnknownName(Problem(field=field, code="unknown_region", message=message, fix=fix))


def names_of_region(row: RegionRow) -> tuple[str, ...]:
    """Every name of a region, in normal form."""
    names = (row.slug, *row.aliases, *(() if row.kind == "cloud-region" else (row.name,)))
    return tuple(name.casefold() for name in names)
