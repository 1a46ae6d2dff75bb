"""What does the catalogue hold, and what does a name in it mean? One frozen set of rows with its digest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import TypeVar

from service.catalogue.names import Entry, Found, NameIndex
from service.catalogue.prices import PriceQuery, newest_price
from service.catalogue.rows import (
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    Row,
    UnsoundFact,
    key_of,
)

Named = ModelRow | GpuRow | ClusterRow | RateCardRow
"""A row that is found by name."""
NamedRow = TypeVar("NamedRow", ModelRow, GpuRow, ClusterRow, RateCardRow)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Models, GPUs, clusters, prices and rate cards, checked against each other; build one with `Catalogue.of`."""

    model_index: NameIndex[ModelRow]
    """Models by every name."""
    gpu_index: NameIndex[GpuRow]
    """GPUs by every name."""
    cluster_index: NameIndex[ClusterRow]
    """Clusters by every name."""
    prices: tuple[PriceRow, ...]
    """Prices, in the order of their ids, from wherever they were read."""
    rate_card_index: NameIndex[RateCardRow]
    """Rate cards by every name."""
    revision: str
    """Digest of all rows: the same facts have the same revision, in any order and process."""

    @classmethod
    def of(
        cls,
        *,
        models: Iterable[ModelRow],
        gpus: Iterable[GpuRow],
        clusters: Iterable[ClusterRow],
        prices: Iterable[PriceRow],
        rate_cards: Iterable[RateCardRow] = (),
    ) -> "Catalogue":
        """The catalogue of some rows.

        Args:
            models: model presets
            gpus: accelerators
            clusters: named machines
            prices: prices
            rate_cards: a team's own prices

        Returns:
            the catalogue

        Raises:
            UnsoundFact: two rows share a name or id that must be unique, or a row speaks of a GPU that is not there
        """
        model_index = NameIndex.of("model", map(_entry, models))
        gpu_index = NameIndex.of("gpu", map(_entry, gpus))
        cluster_index = NameIndex.of("cluster", map(_entry, clusters))
        card_index = NameIndex.of("rate_card", map(_entry, rate_cards))
        held = _by_id(prices)
        rows: tuple[Row, ...] = (
            *model_index.rows.values(),
            *gpu_index.rows.values(),
            *cluster_index.rows.values(),
            *held,
            *card_index.rows.values(),
        )
        for gpu in (gpu for row in rows for gpu in gpus_of(row)):
            if gpu not in gpu_index.rows:
                raise UnsoundFact(f"a cluster or a price speaks of gpu {gpu}, which the catalogue does not hold")
        return cls(model_index, gpu_index, cluster_index, held, card_index, _digest(rows))

    def changed(self, put: Iterable[Row] = (), drop: Iterable[Row] = ()) -> "Catalogue":
        """The catalogue after a change.

        Args:
            put: rows that are new or take the place of the one of their kind and key
            drop: rows that go

        Returns:
            another catalogue

        Raises:
            UnsoundFact: the rows contradict each other then
        """
        held = {(type(row), key_of(row)): row for row in self.rows()}
        for row in drop:
            del held[type(row), key_of(row)]
        held |= {(type(row), key_of(row)): row for row in put}
        return Catalogue.from_rows(held.values())

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> "Catalogue":
        """The catalogue of rows of any kind.

        Args:
            rows: the rows, mixed

        Returns:
            the catalogue

        Raises:
            UnsoundFact: the rows contradict each other
        """
        held = tuple(rows)
        return cls.of(
            models=[row for row in held if isinstance(row, ModelRow)],
            gpus=[row for row in held if isinstance(row, GpuRow)],
            clusters=[row for row in held if isinstance(row, ClusterRow)],
            prices=[row for row in held if isinstance(row, PriceRow)],
            rate_cards=[row for row in held if isinstance(row, RateCardRow)],
        )

    def rows(self) -> tuple[Row, ...]:
        """Every row, kind by kind.

        Returns:
            the rows
        """
        return (
            *self.models.values(),
            *self.gpus.values(),
            *self.clusters.values(),
            *self.prices,
            *self.rate_cards.values(),
        )

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
    def rate_cards(self) -> Mapping[str, RateCardRow]:
        """Rate cards by slug."""
        return self.rate_card_index.rows

    def find_model(self, name: str, field: str = "model") -> Found[ModelRow]:
        """The model that a name means.

        Args:
            name: slug, alias or Hugging Face id, in any spelling
            field: dotted path of the name in the question, for the error

        Returns:
            its row, and what was assumed

        Raises:
            UnknownName: no such model; the fix lists the nearest names
        """
        return self.model_index.find(name, field)

    def find_gpu(self, name: str, field: str = "cluster.gpu") -> Found[GpuRow]:
        """The GPU that a name means.

        Args:
            name: slug, nvidia-smi name, Kubernetes label, machine type or short name, in any spelling
            field: dotted path of the name in the question, for the error

        Returns:
            its row, and what was assumed where several GPUs share the name

        Raises:
            UnknownName: no such GPU; the fix lists the nearest names
        """
        return self.gpu_index.find(name, field)

    def find_cluster(self, name: str, field: str = "cluster") -> Found[ClusterRow]:
        """The cluster that a name means.

        Args:
            name: slug, machine type or name in print, in any spelling
            field: dotted path of the name in the question, for the error

        Returns:
            its row, and what was assumed

        Raises:
            UnknownName: no such cluster; the fix lists the nearest names
        """
        return self.cluster_index.find(name, field)

    def find_rate_card(self, name: str, field: str = "price.rate_card") -> Found[RateCardRow]:
        """The rate card that a name means.

        Args:
            name: slug or name in print, in any spelling
            field: dotted path of the name in the question, for the error

        Returns:
            its row, and what was assumed

        Raises:
            UnknownName: no such card; the fix lists the nearest names
        """
        return self.rate_card_index.find(name, field)

    def newest_price(self, query: PriceQuery, field: str = "price") -> Found[PriceRow]:
        """The newest price that answers a query.

        Args:
            query: who, where, on what terms, which GPU
            field: dotted path of the query in the question, for the error

        Returns:
            its row, and what was assumed where several rows answer

        Raises:
            UnknownName: no such price; the fix lists what there is
        """
        return newest_price(self.prices, query, field)


def gpus_of(row: Row) -> tuple[str, ...]:
    """The GPUs that a row speaks of.

    Args:
        row: a row of any kind

    Returns:
        their catalogue names
    """
    if isinstance(row, ClusterRow):
        return (row.cluster.gpu,)
    if isinstance(row, PriceRow):
        return (row.gpu,)
    return tuple(rate.gpu for rate in row.rates) if isinstance(row, RateCardRow) else ()


def names_of(row: Named) -> Mapping[str, tuple[str, ...]]:
    """Every name that means a row, beside its slug.

    Args:
        row: a row that is found by name

    Returns:
        names by the field that gives them
    """
    return {
        "name": (row.name,),
        "aliases": getattr(row, "aliases", ()),
        "hugging_face_id": (row.hugging_face_id,) if isinstance(row, ModelRow) and row.hugging_face_id else (),
    }


def _entry(row: NamedRow) -> Entry[NamedRow]:
    aliases = tuple(name for names in names_of(row).values() for name in names)
    return Entry(slug=row.slug, aliases=aliases, default_for=getattr(row, "default_for", ()), row=row)


def _by_id(prices: Iterable[PriceRow]) -> tuple[PriceRow, ...]:
    held = sorted(prices, key=lambda row: row.id)
    twice = next((row.id for row, following in pairwise(held) if row.id == following.id), None)
    if twice:
        raise UnsoundFact(f"two rows are price {twice}")
    return tuple(held)


def _digest(rows: Iterable[object]) -> str:
    lines = sorted(repr(row) for row in rows)
    return sha256("\n".join(lines).encode()).hexdigest()[:12]
