"""Which facts does the database hold, and are the shipped ones among them?"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, Table, delete, insert, select

from service.catalogue import Catalogue, ClusterRow, GpuRow, ModelRow, PriceRow
from service.estimator import Cluster, Gpu
from service.store.engine import reading
from service.store.tables import CLUSTERS, GPUS, MODELS, PRICES, SEEDINGS, SHIPPED

Row = TypeVar("Row")
Record = dict[str, Any]


def load_catalogue(engine: Engine) -> Catalogue:
    """Everything the database knows, the shipped rows and a team's own.

    Args:
        engine: the database

    Returns:
        the catalogue

    Raises:
        UnsoundFact: rows contradict each other
    """
    with reading(engine) as connection:
        return Catalogue.of(
            models=_MODELS.read(connection),
            gpus=_GPUS.read(connection),
            clusters=_CLUSTERS.read(connection),
            prices=_PRICES.read(connection),
        )


def is_seeded(connection: Connection, shipped: Catalogue) -> bool:
    """Whether the database holds the shipped rows, as they are shipped now.

    Args:
        connection: the database, at the head revision
        shipped: the rows that come with this version

    Returns:
        true if nothing is to be seeded
    """
    return connection.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all() == [shipped.revision]


def seed(connection: Connection, shipped: Catalogue) -> None:
    """Put the shipped rows in the place of those of another version; a team's own rows stay.

    Args:
        connection: the database, inside a writing transaction
        shipped: the rows that come with this version
    """
    if is_seeded(connection, shipped):
        return
    _MODELS.replace(connection, shipped.models.values())
    _GPUS.replace(connection, shipped.gpus.values())
    _CLUSTERS.replace(connection, shipped.clusters.values())
    _PRICES.replace(connection, shipped.prices)
    connection.execute(delete(SEEDINGS))
    connection.execute(insert(SEEDINGS), {"catalogue_revision": shipped.revision, "seeded_at": datetime.now(UTC)})


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Row]):
    """One kind of row and the table that keeps it."""

    rows: TypeAdapter[list[Row]]
    """Rows to plain values and back, checked."""
    table: Table
    """Their table."""
    spread: str = ""
    """Field of the rows whose own fields are columns."""
    spread_columns: tuple[str, ...] = ()
    """Those columns."""

    def read(self, connection: Connection) -> list[Row]:
        """Every row, by key: sorted here, because databases sort text each in their own way."""
        keys = [column.name for column in self.table.primary_key]
        found = connection.execute(select(self.table)).mappings()
        records = sorted(found, key=lambda record: [record[key] for key in keys])
        return self.rows.validate_python([self._gathered(dict(record)) for record in records])

    def replace(self, connection: Connection, rows: Iterable[Row]) -> None:
        """The shipped rows of this kind, new for old."""
        connection.execute(delete(self.table).where(self.table.c.owner == SHIPPED))
        records = [self._spread(record) for record in self.rows.dump_python(list(rows), mode="json")]
        if records:
            connection.execute(insert(self.table), [{"owner": SHIPPED, **record} for record in records])

    def _spread(self, record: Record) -> Record:
        spread = record.pop(self.spread) if self.spread else {}
        return {**record, **spread}

    def _gathered(self, record: Record) -> Record:
        del record["owner"], record["revision"]
        spread = {name: record.pop(name) for name in self.spread_columns}
        return {**record, self.spread: spread} if self.spread else record


def _names(noun: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(noun))


_MODELS = _Kept(TypeAdapter(list[ModelRow]), MODELS)
_GPUS = _Kept(TypeAdapter(list[GpuRow]), GPUS, "gpu", _names(Gpu))
_CLUSTERS = _Kept(TypeAdapter(list[ClusterRow]), CLUSTERS, "cluster", _names(Cluster))
_PRICES = _Kept(TypeAdapter(list[PriceRow]), PRICES)
