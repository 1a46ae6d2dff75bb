"""The catalogue, a frozen set of rows that are found by name; and all rows of all owners, with each owner's view."""

from collections.abc import Container, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

from service.catalogue.indexes import (
    Found,
    Key,
    Named,
    NameIndex,
    changed_of,
    digest_of,
    digests_of,
    find_region,
    forms_of,
    forms_of_row,
    gpus_of,
    index_of,
    of_kind,
    renewed,
    revision_of,
    rows_after,
    rows_by_key,
)
from service.catalogue.prices import PriceIndex, PriceQuery, find_price
from service.catalogue.rows import (
    SHIPPED,
    CalibrationRow,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    Row,
    UnsoundFact,
    key_of,
)
from service.estimator.constants import calibrated
from service.estimator.question import Gpu


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Models, GPUs, clusters, prices and rate cards, checked against each other; build one with `Catalogue.of`."""

    model_index: NameIndex[ModelRow]
    gpu_index: NameIndex[GpuRow]
    cluster_index: NameIndex[ClusterRow]
    price_index: PriceIndex
    """Prices by id, and by GPU and provider."""
    rate_card_index: NameIndex[RateCardRow]
    regions: Mapping[str, RegionRow]
    """Regions by slug, in their order, from all sources."""
    calibrations: Mapping[str, CalibrationRow]
    """Promoted calibrations by GPU, in their order."""
    digests: Mapping[Key, bytes]
    revision: str
    """Digest of all rows: the same facts have the same revision, in any order and process."""
    promoters: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Owners of rows that an admin promoted to everyone; some of the rows may be gone."""
    viewer: str | None = field(default=None, compare=False, repr=False)
    """The owner of this view: its custom rows need no warning; None unless it is one of the promoters."""

    @classmethod
    def of(
        cls,
        *,
        models: Iterable[ModelRow],
        gpus: Iterable[GpuRow],
        clusters: Iterable[ClusterRow],
        prices: Iterable[PriceRow],
        rate_cards: Iterable[RateCardRow] = (),
        regions: Iterable[RegionRow] = (),
    ) -> "Catalogue":
        """The catalogue of some rows, without calibrations."""
        return cls.from_rows((*models, *gpus, *clusters, *prices, *rate_cards, *regions))

    def __post_init__(self) -> None:
        others: tuple[Row, ...] = (*self.clusters.values(), *self.rate_cards.values(), *self.calibrations.values())
        referenced = self.price_index.gpus().union(gpu for row in others for gpu in gpus_of(row))
        for gpu in referenced - self.gpus.keys():
            raise UnsoundFact(f"a row refers to gpu {gpu}, which the catalogue does not hold")

    def changed(self, put: Iterable[Row] = (), drop: Iterable[Row] = (), revision: str | None = None) -> "Catalogue":
        """The catalogue after a change; indexes of unchanged rows are reused."""
        change: dict[Key, Row | None] = {(type(row), key_of(row)): None for row in drop}
        change |= {(type(row), key_of(row)): row for row in put}
        digests = {key: digest for key, digest in self.digests.items() if key not in change}
        digests |= {key: digest_of(row) for key, row in change.items() if row is not None}
        return Catalogue(
            renewed(self.model_index, ModelRow, change),
            renewed(self.gpu_index, GpuRow, change),
            renewed(self.cluster_index, ClusterRow, change),
            self.price_index.changed(changed_of(change, PriceRow)),
            renewed(self.rate_card_index, RateCardRow, change),
            dict(sorted(rows_after(self.regions, RegionRow, change).items())),
            dict(sorted(rows_after(self.calibrations, CalibrationRow, change).items())),
            digests,
            revision_of(digests) if revision is None else revision,
            self.promoters.union(_promoters_of(row for row in change.values() if row is not None)),
        )

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> "Catalogue":
        all_rows = tuple(rows)
        digests = digests_of(all_rows)
        return cls(
            index_of("model", of_kind(all_rows, ModelRow)),
            index_of("gpu", of_kind(all_rows, GpuRow)),
            index_of("cluster", of_kind(all_rows, ClusterRow)),
            PriceIndex.of(of_kind(all_rows, PriceRow)),
            index_of("rate_card", of_kind(all_rows, RateCardRow)),
            rows_by_key(of_kind(all_rows, RegionRow), "two rows are region"),
            rows_by_key(of_kind(all_rows, CalibrationRow), "two calibrations hold for gpu"),
            digests,
            revision_of(digests),
            frozenset(_promoters_of(all_rows)),
        )

    def viewed_by(self, owner: str) -> "Catalogue":
        """The same rows in the view of an owner."""
        if owner not in self.promoters or owner == self.viewer:
            return self
        view = copy(self)
        object.__setattr__(view, "viewer", owner)
        return view

    @property
    def token(self) -> str:
        """Identity of the catalogue within a process: its revision, and the owner of the view where that matters."""
        return self.revision if self.viewer is None else f"{self.revision} {self.viewer}"

    def rows(self) -> tuple[Row, ...]:
        """Every row, kind by kind."""
        return tuple(row for rows in self._kinds.values() for row in rows.values())

    @property
    def models(self) -> Mapping[str, ModelRow]:
        return self.model_index.rows

    @property
    def gpus(self) -> Mapping[str, GpuRow]:
        return self.gpu_index.rows

    @property
    def clusters(self) -> Mapping[str, ClusterRow]:
        return self.cluster_index.rows

    @property
    def prices(self) -> tuple[PriceRow, ...]:
        """Prices, in the order of their ids."""
        return tuple(self.price_index.rows.values())

    @property
    def rate_cards(self) -> Mapping[str, RateCardRow]:
        return self.rate_card_index.rows

    def row(self, kind: type, key: str) -> Row | None:
        """The row with a key; other names of a row do not match."""
        return self._kinds[kind].get(key)

    @property
    def indexes(self) -> Mapping[type, NameIndex[Any]]:
        """The index of names of each kind of row."""
        return {
            ModelRow: self.model_index,
            GpuRow: self.gpu_index,
            ClusterRow: self.cluster_index,
            RateCardRow: self.rate_card_index,
        }

    @property
    def _kinds(self) -> Mapping[type, Mapping[str, Row]]:
        """The rows of each kind by key; GPUs before the rows that refer to them."""
        return {
            ModelRow: self.models,
            GpuRow: self.gpus,
            ClusterRow: self.clusters,
            PriceRow: self.price_index.rows,
            RateCardRow: self.rate_cards,
            RegionRow: self.regions,
            CalibrationRow: self.calibrations,
        }

    def find_model(self, name: str, field: str = "model") -> Found[ModelRow]:
        return self.model_index.find(name, field)

    def find_gpu(self, name: str, field: str = "cluster.gpu") -> Found[GpuRow]:
        return self.gpu_index.find(name, field)

    def find_cluster(self, name: str, field: str = "cluster") -> Found[ClusterRow]:
        return self.cluster_index.find(name, field)

    def find_rate_card(self, name: str, field: str = "price.rate_card") -> Found[RateCardRow]:
        return self.rate_card_index.find(name, field)

    def find_region(self, name: str, field: str = "cluster.grid_region") -> Found[RegionRow]:
        return find_region(self.regions, name, field)

    def newest_price(self, query: PriceQuery, field: str = "price") -> Found[PriceRow]:
        return find_price(self.price_index, query, field)


def _promoters_of(rows: Iterable[Row]) -> set[str]:
    return {row.owner for row in rows if row.owner != SHIPPED and row.is_for_everyone}


def calibrated_gpu(slug: str, catalogue: Catalogue) -> Gpu:
    """The facts of a GPU, with its promoted calibration."""
    promoted, gpu = catalogue.calibrations.get(slug), catalogue.gpus[slug].gpu
    return gpu if promoted is None else calibrated(gpu, promoted.calibration)


class AdjustedRow(NamedTuple):
    """A row whose names give way to those of other rows."""

    row: Row
    adjusted: Row | None
    """The row without names that others have; None where it is left out."""
    missing_gpu: str | None = None
    """Left-out GPU that it refers to; None where a name conflicts."""


def adjusted_rows(fixed: Iterable[Row], others: Iterable[Row]) -> Iterator[AdjustedRow]:
    """Rows without names of fixed rows. One whose slug is such a name is left out, and so is one of a left-out GPU."""
    stay = tuple(fixed)
    keys = {(type(row), key_of(row)) for row in stay}
    taken = {(type(row), form) for row in stay for form in forms_of_row(row)}
    left_out: set[str] = set()
    for row in others:
        key: Key = (type(row), key_of(row))
        missing = left_out.intersection(gpus_of(row))
        if missing:
            yield AdjustedRow(row, None, min(missing))
        elif key in keys or any((type(row), form) in taken for form in forms_of(key_of(row))):
            left_out |= {key_of(row)} if isinstance(row, GpuRow) and key not in keys else set()
            yield AdjustedRow(row, None)
        else:
            yield AdjustedRow(
                row, row if isinstance(row, PriceRow | RegionRow | CalibrationRow) else _without(row, taken)
            )


def _without(row: Named, taken: Container[tuple[type, str]]) -> Named:

    def is_free(name: str) -> bool:
        return not any((type(row), form) in taken for form in forms_of(name))

    names: dict[str, Any] = {
        name: tuple(filter(is_free, getattr(row, name))) for name in ("aliases", "default_for") if hasattr(row, name)
    }
    if not is_free(row.name):
        names["name"] = row.slug
    if isinstance(row, ModelRow) and row.hugging_face_id and not is_free(row.hugging_face_id):
        names["hugging_face_id"] = None
    return replace(row, **names) if any(getattr(row, name) != value for name, value in names.items()) else row


EVERYONE = SHIPPED
"""Name of the part for everyone; other parts bear the name of their owner."""

MOST_VIEWS = 128
"""Views of owners with private rows in memory. Source: a choice; one takes about 0.3 MB and 10 ms."""

Place = tuple[str, Key]
"""A part, and the key of a row in it."""


def part_of(row: Row) -> str:
    """The part of a row: its owner's, or everyone's."""
    return EVERYONE if row.is_for_everyone else row.owner


def place_of(row: Row) -> Place:
    """The place of a row: no two rows have one place at one time."""
    return part_of(row), (type(row), key_of(row))


def view_revision(everyone: str, private: str) -> str:
    """Digest of the view of an owner with private rows."""
    return sha256(f"{everyone} {private}".encode()).hexdigest()[:12] if private else everyone


@dataclass(frozen=True, slots=True)
class PrivateRows:
    """The rows that only one owner sees."""

    rows: Mapping[Key, Row]
    digests: Mapping[Key, bytes]
    revision: str
    """Digest of all of them."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "PrivateRows":
        by_key = {(type(row), key_of(row)): row for row in rows}
        digests = digests_of(by_key.values())
        return cls(by_key, digests, revision_of(digests) if digests else "")

    def changed(self, change: Mapping[Key, Row | None]) -> "PrivateRows":
        """The rows after a change: new rows by key, None for a removed row."""
        gone = {key for key, row in change.items() if row is None}
        rows = {key: row for key, row in self.rows.items() if key not in gone}
        rows |= {key: row for key, row in change.items() if row is not None}
        digests = {key: digest for key, digest in self.digests.items() if key not in change}
        digests |= {key: digest_of(row) for key, row in change.items() if row is not None}
        return PrivateRows(rows, digests, revision_of(digests) if digests else "")


NONE_PRIVATE = PrivateRows({}, {}, "")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of one moment; only the cache of views ever changes."""

    everyone: Catalogue
    """The rows that every caller sees: shipped and promoted ones."""
    private: Mapping[str, PrivateRows] = field(default_factory=dict)
    """Private rows by owner; owners without any are absent."""
    _views: dict[str, Catalogue] = field(default_factory=dict, compare=False, repr=False)
    _disjoint: set[str] = field(default_factory=set, compare=False, repr=False)
    """Owners whose private rows conflict with no row for everyone."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Snapshot":
        """All rows, partitioned by who sees them."""
        parts: dict[str, list[Row]] = {EVERYONE: []}
        for row in rows:
            parts.setdefault(part_of(row), []).append(row)
        everyone = Catalogue.from_rows(parts.pop(EVERYONE))
        return cls(everyone, {owner: PrivateRows.of(own) for owner, own in sorted(parts.items())})

    @property
    def revision(self) -> str:
        """Digest of all rows of all owners; callers get it only where no row is private."""
        private = " ".join(f"{owner!r} {own.revision}" for owner, own in sorted(self.private.items()))
        return view_revision(self.everyone.revision, private)

    @property
    def parts(self) -> Mapping[str, str]:
        """Digest of each part with rows, by its name."""
        return {EVERYONE: self.everyone.revision} | {owner: own.revision for owner, own in self.private.items()}

    @property
    def count(self) -> int:
        return len(self.everyone.digests) + sum(len(own.rows) for own in self.private.values())

    def rows(self) -> Iterator[Row]:
        """Every row of every owner."""
        yield from self.everyone.rows()
        for own in self.private.values():
            yield from own.rows.values()

    def rows_of_kind(self, kind: type) -> Iterator[Row]:
        """Every private row of a kind, owner by owner."""
        for own in self.private.values():
            yield from (row for (of, _), row in own.rows.items() if of is kind)

    def at(self, place: Place) -> Row | None:
        """The row at a place, if any."""
        part, key = place
        if part == EVERYONE:
            return self.everyone.row(*key)
        return self.private.get(part, NONE_PRIVATE).rows.get(key)

    def cached_view(self, owner: str) -> Catalogue | None:
        """An owner's view, unless it would have to be built."""
        return self._views.get(owner) if owner in self.private else self.everyone

    def view(self, owner: str) -> Catalogue:
        """An owner's view: the rows for everyone and its private ones, which take precedence under a shared name."""
        cached = self.cached_view(owner)
        if cached is not None:
            return cached
        private = self.private[owner]
        is_disjoint = _is_disjoint(self.everyone, private, private.rows.values())
        return self._cache(owner, _combined(self.everyone, private, is_disjoint=is_disjoint), is_disjoint=is_disjoint)

    def rows_closed_by(self, put: Iterable[Row], drop: Iterable[Row]) -> list[Row]:
        """Rows that a change removes or replaces. A promoted row, unless a calibration, also leaves its former part."""
        ended: dict[Place, Row] = {}
        for row in (*drop, *put):
            here = place_of(row)
            former = (row.owner if row.is_for_everyone else EVERYONE), here[1]
            places = [here] if isinstance(row, CalibrationRow) else [here, former]
            for place in places:
                existing = self.at(place)
                if existing is not None and (place == here or existing.owner == row.owner):
                    ended[place] = existing
        return list(ended.values())

    def changed(self, put: Iterable[Row] = (), drop: Iterable[Row] = (), *, is_strict: bool = False) -> "Snapshot":
        new_rows = tuple(put)
        ended = self.rows_closed_by(new_rows, drop)
        change: dict[str, dict[Key, Row | None]] = {}
        for row in ended:
            part, key = place_of(row)
            change.setdefault(part, {})[key] = None
        for row in new_rows:
            part, key = place_of(row)
            change.setdefault(part, {})[key] = row
        everyone = _applied(self.everyone, change.pop(EVERYONE, {}))
        private = dict(self.private)
        for owner, changes in change.items():
            private[owner] = private.get(owner, NONE_PRIVATE).changed(changes)
        after = Snapshot(everyone, {owner: own for owner, own in private.items() if own.rows})
        after._reuse_views(self, change, is_strict=is_strict)
        return after

    def _reuse_views(
        self, before: "Snapshot", change: Mapping[str, Mapping[Key, Row | None]], *, is_strict: bool
    ) -> None:
        """Reuse former views that are equal, or that differ in a few private rows without conflicts."""
        if self.everyone is not before.everyone:
            return
        for owner, view in list(before._views.items()):
            if owner in self.private and owner not in change:
                self._cache(owner, view, is_disjoint=owner in before._disjoint)
        for owner, changes in change.items():
            own = self.private.get(owner, NONE_PRIVATE)
            is_disjoint = (owner in before._disjoint or owner not in before.private) and _is_disjoint(
                self.everyone, own, (row for row in changes.values() if row is not None)
            )
            if is_strict or (is_disjoint and before.cached_view(owner) is not None):
                view = _after(before.view(owner), self.everyone, changes, own.revision)
                if is_disjoint and own.rows:
                    self._cache(owner, view, is_disjoint=True)

    def _cache(self, owner: str, view: Catalogue, *, is_disjoint: bool) -> Catalogue:
        for old in list(self._views)[: len(self._views) + 1 - MOST_VIEWS]:
            self._views.pop(old, None)
        self._views[owner] = view
        if is_disjoint:
            self._disjoint.add(owner)
        return view


def _applied(catalogue: Catalogue, change: Mapping[Key, Row | None]) -> Catalogue:
    if not change:
        return catalogue
    put = [row for row in change.values() if row is not None]
    drop = [row for key, put_there in change.items() if put_there is None and (row := catalogue.row(*key)) is not None]
    return catalogue.changed(put, drop)


def _after(view: Catalogue, everyone: Catalogue, change: Mapping[Key, Row | None], private: str) -> Catalogue:
    """A view after a change of private rows. Where one is removed, the row for everyone of its name reappears."""
    put, drop = [], []
    for key, row in change.items():
        seen = everyone.row(*key) if row is None else row
        gone = view.row(*key)
        if seen is not None:
            put.append(seen)
        elif gone is not None:
            drop.append(gone)
    return view.changed(put, drop, view_revision(everyone.revision, private))


def _is_disjoint(everyone: Catalogue, private: PrivateRows, rows: Iterable[Row]) -> bool:
    """Whether private rows conflict with no row for everyone: no shared name, and no missing GPU."""
    for row in rows:
        if any(gpu not in everyone.gpus and (GpuRow, gpu) not in private.rows for gpu in gpus_of(row)):
            return False
        index = everyone.indexes.get(type(row))
        if index is not None and any(form in index.slugs or form in index.defaults for form in forms_of_row(row)):
            return False
    return True


def _combined(everyone: Catalogue, private: PrivateRows, *, is_disjoint: bool) -> Catalogue:
    """The rows for everyone beside private ones, which stay as they are."""
    revision = view_revision(everyone.revision, private.revision)
    if is_disjoint:
        return everyone.changed(private.rows.values(), revision=revision)
    gpus = everyone.gpus.keys() | {key for kind, key in private.rows if kind is GpuRow}
    own = [row for row in private.rows.values() if gpus.issuperset(gpus_of(row))]
    keys = {(type(row), key_of(row)) for row in own}
    put: list[Row] = []
    drop: list[Row] = []
    for one in adjusted_rows(own, everyone.rows()):
        if one.adjusted is None and (type(one.row), key_of(one.row)) not in keys:
            drop.append(one.row)
        elif one.adjusted is not None and one.adjusted is not one.row:
            put.append(one.adjusted)
    left_out = {row.slug for row in drop if isinstance(row, GpuRow)}
    own = [row for row in own if not left_out.intersection(gpus_of(row))]
    return everyone.changed([*put, *own], drop, revision)
