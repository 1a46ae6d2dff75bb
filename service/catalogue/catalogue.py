"""What does the catalogue hold, and what does a name in it mean? One frozen set of rows with its digest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

from service.catalogue.names import Entry, Found, NameIndex
from service.catalogue.prices import PriceQuery, newest_price
from service.catalogue.rows import ClusterRow, GpuRow, ModelRow, PriceRow, UnsoundFact


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Models, GPUs, clusters and prices, checked against each other; build one with `Catalogue.of`."""

    model_index: NameIndex[ModelRow]
    """Models by every name."""
    gpu_index: NameIndex[GpuRow]
    """GPUs by every name."""
    cluster_index: NameIndex[ClusterRow]
    """Clusters by every name."""
    prices: tuple[PriceRow, ...]
    """Prices, in the order of their ids, from wherever they were read."""
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
    ) -> "Catalogue":
        """The catalogue of some rows.

        Args:
            models: model presets
            gpus: accelerators
            clusters: named machines
            prices: prices

        Returns:
            the catalogue

        Raises:
            UnsoundFact: two rows share a name or id that must be unique, or a row speaks of a GPU that is not there
        """
        model_index = NameIndex.of("model", (Entry(slug=r.slug, aliases=_model_names(r), row=r) for r in models))
        gpu_index = NameIndex.of(
            "gpu",
            (Entry(slug=r.slug, aliases=(r.name, *r.aliases), default_for=r.default_for, row=r) for r in gpus),
        )
        cluster_index = NameIndex.of(
            "cluster", (Entry(slug=r.slug, aliases=(r.name, *r.aliases), row=r) for r in clusters)
        )
        held = _by_id(prices)
        for gpu in (*(row.cluster.gpu for row in cluster_index.rows.values()), *(row.gpu for row in held)):
            if gpu not in gpu_index.rows:
                raise UnsoundFact(f"a cluster or a price speaks of gpu {gpu}, which the catalogue does not hold")
        rows = (*model_index.rows.values(), *gpu_index.rows.values(), *cluster_index.rows.values(), *held)
        return cls(model_index, gpu_index, cluster_index, held, _digest(rows))

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


def _model_names(row: ModelRow) -> tuple[str, ...]:
    return (row.name, *row.aliases, *((row.hugging_face_id,) if row.hugging_face_id else ()))


def _by_id(prices: Iterable[PriceRow]) -> tuple[PriceRow, ...]:
    held = sorted(prices, key=lambda row: row.id)
    twice = next((row.id for row, following in pairwise(held) if row.id == following.id), None)
    if twice:
        raise UnsoundFact(f"two rows are price {twice}")
    return tuple(held)


def _digest(rows: Iterable[object]) -> str:
    lines = sorted(repr(row) for row in rows)
    return sha256("\n".join(lines).encode()).hexdigest()[:12]
