"""What was measured, by whom and on what? Rows are added and quarantined, never changed otherwise."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, select, update

from service.store.audit import note_in
from service.store.engine import answering, insert_new, reading, writing
from service.store.measurement_tables import MEASUREMENTS
from service.store.row_parts import RowPart, part_of
from service.store.scenarios import utc_text

MOST_NAMED = 500
"""Rows that one query names: databases take a few thousand parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement, beside what was predicted of it when it came in."""

    id: str
    """What it is read by: msr_ and a digest of what was measured when in which run, so that nothing comes in twice."""
    measured_at: str
    """When it came in, or when it was taken where that is told, in UTC."""
    source: str
    """Who measured: a launch check, or what it was imported from."""
    run: str
    """What was measured together; calibrations are judged by runs that they never saw."""
    launch_check_id: str | None
    """The launch check; null for what was imported."""
    probe: str
    """Which probe."""
    operation: str
    """What ran."""
    shape: Mapping[str, Any] = field(compare=False)
    """Sizes, number format and kernel."""
    quantity: str
    """What was measured, by the suffix of its unit: seconds, bytes, bytes_per_s, gpu_hours."""
    value: float
    """Median over the repeats."""
    low: float
    """10th percentile over the repeats."""
    high: float
    """90th percentile over the repeats."""
    repeats: int
    """How often it was measured."""
    relative_error_fraction: float | None
    """Error of its result against higher precision; null where none was looked at."""
    predicted_value: float | None
    """What was predicted then; null where no formula speaks of it alone."""
    kind: str
    """Kind of device: cuda, rocm, cpu or other."""
    device: str
    """Name of the device."""
    gpu: str | None
    """Catalogue name of the device; null where the catalogue does not hold it."""
    environment: Mapping[str, Any] = field(compare=False)
    """What it was measured on."""
    fingerprint: str
    """Digest of the device and the software that measured: equal ones may be compared."""
    formulas: str
    """Version of the formulas that predicted."""
    calibration: str | None
    """Calibration that predicted; null where none did."""
    quarantined_at: str | None
    """Since when nothing is fitted on it; null where it counts."""
    reason: str | None
    """Why it is in quarantine."""
    owner: str
    """Whose it is."""


def keep_measurements_in(connection: Connection, rows: Iterable[Measured]) -> None:
    """Keep measurements, in somebody else's transaction; those that are there already stay as they are.

    Args:
        connection: the database, inside a writing transaction
        rows: the measurements
    """
    records = [_record(row) for row in rows]
    if records:
        connection.execute(insert_new(connection, MEASUREMENTS), records)


def read_measurements(
    engine: Engine,
    ids: Sequence[str] | None = None,
    owner: str | None = None,
    values: Mapping[str, Collection[str]] | None = None,
) -> list[Measured]:
    """Measurements.

    Args:
        engine: the database
        ids: which of them; None for all
        owner: whose; None for everybody's
        values: by column, the values that it may have; None for any

    Returns:
        the measurements, in no order; those that there are

    Raises:
        Unreachable: the database does not answer
    """
    asked = (MEASUREMENTS.c[name].in_(sorted(of_it)) for name, of_it in (values or {}).items())
    conditions = [*asked, *_whose(owner)]
    with answering(), reading(engine) as connection:
        if ids is None:
            return measurements_in(connection, *conditions)
        parts = (ids[place : place + MOST_NAMED] for place in range(0, len(ids), MOST_NAMED))
        return [row for part in parts for row in measurements_in(connection, MEASUREMENTS.c.id.in_(part), *conditions)]


def read_measurements_of(engine: Engine, owner: str | None, part: RowPart | None) -> list[Measured]:
    """Measurements of an owner, some at a time where they are many.

    Args:
        engine: the database
        owner: whose; None for everybody's
        part: which of them, and in which order; None for all, in none

    Returns:
        the measurements

    Raises:
        Unreachable: the database does not answer
    """
    held = MEASUREMENTS.c
    query = part_of(select(MEASUREMENTS).where(*_whose(owner)), engine, part, held.id, held.measured_at)
    with answering(), reading(engine) as connection:
        return [_measured(row) for row in connection.execute(query).mappings()]


def counting_measurements(engine: Engine, owner: str | None, device: str, since: datetime) -> list[Measured]:
    """Measurements of a device that are not in quarantine.

    Args:
        engine: the database
        owner: whose; None for everybody's
        device: name of the device
        since: from when on

    Returns:
        the measurements, in no order

    Raises:
        Unreachable: the database does not answer
    """
    held = MEASUREMENTS.c
    newer = (held.device == device, held.measured_at >= since, held.quarantined_at.is_(None))
    with answering(), reading(engine) as connection:
        return measurements_in(connection, *newer, *_whose(owner))


def measurements_like(connection: Connection, rows: Collection[Measured]) -> list[Measured]:
    """Measurements that others may be compared with: those that count of their owner, fingerprints, probes, operations.

    Args:
        connection: the database
        rows: the others

    Returns:
        the measurements, in no order
    """
    named = ("owner", "device", "fingerprint", "probe", "operation")
    alike = (MEASUREMENTS.c[name].in_(sorted({getattr(row, name) for row in rows})) for name in named)
    return measurements_in(connection, MEASUREMENTS.c.quarantined_at.is_(None), *alike)


def _whose(owner: str | None) -> list[ColumnElement[bool]]:
    return [] if owner is None else [MEASUREMENTS.c.owner == owner]


def measurements_in(connection: Connection, *which: ColumnElement[bool]) -> list[Measured]:
    """Measurements that meet some conditions.

    Args:
        connection: the database
        which: the conditions

    Returns:
        the measurements, in no order
    """
    return [_measured(row) for row in connection.execute(select(MEASUREMENTS).where(*which)).mappings()]


def quarantine_measurements(engine: Engine, ids: Sequence[str], moment: datetime | None, reason: str | None) -> None:
    """Take measurements out of what calibrations are fitted on, or back in.

    Args:
        engine: the database
        ids: their ids
        moment: since when; None to release them
        reason: why; None to release them

    Raises:
        Unreachable: the database does not answer
    """
    changed = update(MEASUREMENTS).values(quarantined_at=moment, reason=reason)
    with answering(), writing(engine) as connection:
        for place in range(0, len(ids), MOST_NAMED):
            connection.execute(changed.where(MEASUREMENTS.c.id.in_(ids[place : place + MOST_NAMED])))
        note_in(connection, *ids)


def _record(row: Measured) -> dict[str, Any]:
    record = {name: getattr(row, name) for name in _NAMES}
    return {**record, **{name: record[name] and datetime.fromisoformat(record[name]) for name in _DATES}}


def _measured(row: Mapping[Any, Any]) -> Measured:
    values = {name: row[name] for name in _NAMES}
    return Measured(**{**values, **{name: values[name] and utc_text(values[name]) for name in _DATES}})


_NAMES = tuple(one.name for one in fields(Measured))
_DATES = ("measured_at", "quarantined_at")
