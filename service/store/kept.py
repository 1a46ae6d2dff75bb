"""How does a row of the catalogue become columns and a row again, version by version? One table for each kind."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    func,
    insert,
    not_,
    or_,
    select,
    tuple_,
    update,
)

from service.catalogue import (
    EVERYONE,
    SHIPPED,
    CalibrationRow,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    Row,
)
from service.catalogue.rows import TELLS_PRICES_APART, price_id
from service.errors import TraincostError
from service.estimator import Cluster, Gpu
from service.store.tables import CLUSTERS, GPUS, MODELS, PRICES, PROMOTED_CALIBRATIONS, RATE_CARDS, REGIONS

AT_ONCE = 2_000
"""Rows that are read in one go: others answer in between."""
MOST_NAMED = 50
"""Rows that a query asks for by name; for more of them, reading all in one go is faster."""

Record = dict[str, Any]
Identity = tuple[Any, ...]
"""Values of a row's key columns, its owner among them."""


class OtherVersions(TraincostError):
    """The database does not hold exactly the versions that a change ends; nothing of the change must be committed."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of row and the table that keeps its versions."""

    rows: TypeAdapter[list[Any]]
    """Rows to plain values and back, checked."""
    table: Table
    """Their table."""
    spread: str = ""
    """Field of the rows whose own fields are columns."""
    spread_columns: tuple[str, ...] = ()
    """Those columns."""

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that tell one row from another, whatever its version."""
        return tuple(column.name for column in self.table.primary_key if column.name != "revision")

    def read(self, connection: Connection, which: ColumnElement[bool]) -> list[Any]:
        """Versions of rows, by key: sorted here, because databases sort text each in their own way.

        Args:
            connection: the database
            which: what the versions have to meet

        Returns:
            the rows
        """
        key = attrgetter(*self.key, "revision")
        found = connection.execute(select(self.table).where(which).execution_options(yield_per=AT_ONCE))
        rows: list[Any] = []
        for part in found.mappings().partitions():  # a million rows at once would take three times the memory
            rows += self.rows.validate_python([self._gathered(dict(record)) for record in part])
        return sorted(rows, key=key)

    def close(self, connection: Connection, rows: Iterable[Row], number: int) -> None:
        """End the versions that hold now.

        Args:
            connection: the database, inside a writing transaction
            rows: the rows whose versions end, each of them once
            number: the change that ends them

        Raises:
            OtherVersions: one of them does not hold
        """
        identities = [dict(zip(map("{}_".format, self.key), self.identity(row), strict=True)) for row in rows]
        if not identities:
            return
        same = [self.table.c[name] == bindparam(f"{name}_") for name in self.key]
        holds = self.table.c.until_change.is_(None)
        ended = connection.execute(update(self.table).where(and_(*same, holds)).values(until_change=number), identities)
        if ended.rowcount != len(identities):  # a unique index keeps two that hold from making up for one that does not
            raise OtherVersions(f"{len(identities)} versions of {self.table.name} were to end, {ended.rowcount} held")

    def add(self, connection: Connection, rows: Iterable[Row], number: int) -> list[Any]:
        """Add a version of each row, the next after all that the row ever had.

        Args:
            connection: the database, inside a writing transaction
            rows: the rows
            number: the change since which they hold

        Returns:
            the rows with their revisions
        """
        held = tuple(rows)
        last = self._last_revisions(connection, held)
        added = [replace(row, revision=last.get(self.identity(row), 0) + 1) for row in held]
        records = [self._spread(record) for record in self.rows.dump_python(added, mode="json")]
        if records:
            connection.execute(insert(self.table), [{**record, "since_change": number} for record in records])
        return added

    def _last_revisions(self, connection: Connection, rows: Iterable[Row]) -> dict[Identity, int]:
        """The revision of the last version of each row that ever had one; others may be among them."""
        key = [self.table.c[name] for name in self.key]
        latest = select(*key, func.max(self.table.c.revision)).group_by(*key)
        identities = [self.identity(row) for row in rows]
        if len(identities) <= MOST_NAMED:
            latest = latest.where(tuple_(*key).in_(identities))
        return {tuple(identity): revision for *identity, revision in connection.execute(latest)}

    def identity(self, row: Row) -> Identity:
        """What tells a row from every other of its kind and owner.

        Args:
            row: the row

        Returns:
            values of its key columns
        """
        return tuple(getattr(row, name) for name in self.key)

    def named(self, connection: Connection, key: str, held: Row | None) -> ColumnElement[bool] | None:
        """What every version of a row meets, whoever owned it.

        Args:
            connection: the database
            key: slug of the row, or the id of a price
            held: the row as it holds now; None where it does not

        Returns:
            the condition; None where there never was such a row
        """
        if "slug" in self.table.c:
            return self.table.c.slug == key
        columns = [self.table.c[name] for name in TELLS_PRICES_APART]
        if held is not None:
            told: Sequence[str] | None = [getattr(held, name) for name in TELLS_PRICES_APART]
        else:
            ended = connection.execute(select(*columns).where(self.table.c.until_change.is_not(None)))
            told = next((row for row in ended if price_id(row) == key), None)
        return None if told is None else and_(*(c == value for c, value in zip(columns, told, strict=True)))

    def _spread(self, record: Record) -> Record:
        spread = record.pop(self.spread) if self.spread else {}
        return {**record, **spread}

    def _gathered(self, record: Record) -> Record:
        del record["since_change"], record["until_change"]
        spread = {name: record.pop(name) for name in self.spread_columns}
        return {**record, self.spread: spread} if self.spread else record


def holding_at(table: Table, number: int) -> ColumnElement[bool]:
    """What the versions meet that held right after a change.

    Args:
        table: their table
        number: the change

    Returns:
        the condition
    """
    ended_later = or_(table.c.until_change.is_(None), table.c.until_change > number)
    return and_(table.c.since_change <= number, ended_later)


def in_part(table: Table, part: str | None) -> list[ColumnElement[bool]]:
    """What the versions meet that stand in a part of all rows.

    Args:
        table: their table
        part: everyone, or the owner who alone sees them; None for all
    """
    if part is None:
        return []
    is_for_everyone = or_(table.c.owner == SHIPPED, table.c.scope == "everyone")
    return [is_for_everyone] if part == EVERYONE else [table.c.owner == part, not_(is_for_everyone)]


def _names(noun: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(noun))


KEPT: Mapping[type, Kept] = {
    ModelRow: Kept(TypeAdapter(list[ModelRow]), MODELS),
    GpuRow: Kept(TypeAdapter(list[GpuRow]), GPUS, "gpu", _names(Gpu)),
    ClusterRow: Kept(TypeAdapter(list[ClusterRow]), CLUSTERS, "cluster", _names(Cluster)),
    PriceRow: Kept(TypeAdapter(list[PriceRow]), PRICES),
    RateCardRow: Kept(TypeAdapter(list[RateCardRow]), RATE_CARDS),
    RegionRow: Kept(TypeAdapter(list[RegionRow]), REGIONS),
    CalibrationRow: Kept(TypeAdapter(list[CalibrationRow]), PROMOTED_CALIBRATIONS),
}
"""Every kind of row, with its table."""
