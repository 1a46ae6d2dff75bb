"""The catalogue: one frozen set of rows with its digest, found by name."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from service.catalogue.indexes import (
    Found,
    Key,
    NameIndex,
    changed_of,
    digest_of,
    digests_of,
    find_region,
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
    """Models by every name."""
    gpu_index: NameIndex[GpuRow]
    """GPUs by every name."""
    cluster_index: NameIndex[ClusterRow]
    """Clusters by every name."""
    price_index: PriceIndex
    """Prices by id, and by GPU and provider."""
    rate_card_index: NameIndex[RateCardRow]
    """Rate cards by every name."""
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
        """Refuse rows that refer to a missing GPU."""
        others: tuple[Row, ...] = (*self.clusters.values(), *self.rate_cards.values(), *self.calibrations.values())
        referenced = self.price_index.gpus().union(gpu for row in others for gpu in gpus_of(row))
        for gpu in referenced - self.gpus.keys():
            raise UnsoundFact(f"a row speaks of gpu {gpu}, which the catalogue does not hold")

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
        """The catalogue of rows of any kind."""
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
        """Models by slug."""
        return self.model_index.rows

    @property
    def gpus(self) -> Mapping[str, GpuRow]:
        """GPUs by slug."""
        return self.gpu_index.rows

    @property
    def clusters(self) -> Mapping[str, ClusterRow]:
        """Clusters by slug."""
        return self.cluster_index.rows

    @property
    def prices(self) -> tuple[PriceRow, ...]:
        """Prices, in the order of their ids."""
        return tuple(self.price_index.rows.values())

    @property
    def rate_cards(self) -> Mapping[str, RateCardRow]:
        """Rate cards by slug."""
        return self.rate_card_index.rows

    def row(self, kind: type, key: str) -> Row | None:
        """The row of a key, and of no other name."""
        return self._kinds[kind].get(key)

    @property
    def indexes(self) -> Mapping[type, NameIndex[Any]]:
        """The indexes by name, by kind."""
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
        """The model that a name means."""
        return self.model_index.find(name, field)

    def find_gpu(self, name: str, field: str = "cluster.gpu") -> Found[GpuRow]:
        """The GPU that a name means."""
        return self.gpu_index.find(name, field)

    def find_cluster(self, name: str, field: str = "cluster") -> Found[ClusterRow]:
        """The cluster that a name means."""
        return self.cluster_index.find(name, field)

    def find_rate_card(self, name: str, field: str = "price.rate_card") -> Found[RateCardRow]:
        """The rate card that a name means."""
        return self.rate_card_index.find(name, field)

    def find_region(self, name: str, field: str = "cluster.grid_region") -> Found[RegionRow]:
        """The region that a name means."""
        return find_region(self.regions, name, field)

    def newest_price(self, query: PriceQuery, field: str = "price") -> Found[PriceRow]:
        """The newest price that matches a query."""
        return find_price(self.price_index, query, field)


def _promoters_of(rows: Iterable[Row]) -> set[str]:
    return {row.owner for row in rows if row.owner != SHIPPED and row.is_for_everyone}


def calibrated_gpu(slug: str, catalogue: Catalogue) -> Gpu:
    """The facts of a GPU, with its promoted calibration."""
    promoted, gpu = catalogue.calibrations.get(slug), catalogue.gpus[slug].gpu
    return gpu if promoted is None else calibrated(gpu, promoted.calibration)
