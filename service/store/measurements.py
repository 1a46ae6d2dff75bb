"""Measurements with their predictions, and calibrations with their errors. A calibration's constants never change."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from json import loads
from typing import Any, Literal

import sqlalchemy as sa

from service.catalogue.rows import Scope
from service.store.engine import RowPart, answering, insert_new, part_of, reading, row_as, values_of, writing
from service.store.requests import log_change_in
from service.store.tables import CALIBRATIONS, MEASUREMENTS

MOST_NAMED = 500
"""Ids in one query: databases take a few thousand parameters."""
AT_ONCE = 500
TEXTS_CACHED = 256
"""Different shapes and environments cached while rows are read: one worker measures most rows. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement, with its prediction at the time when it was stored."""

    id: str
    """Id: msr_ and a digest of the run, the moment and the measurement, so that nothing is stored twice."""
    measured_at: str
    """When it was taken, in UTC; where that is unknown, when it was stored."""
    source: str
    """Source: a launch check, or what it was imported from."""
    run: str
    """Measurements taken together; calibrations are scored on runs that they were not fitted on."""
    launch_check_id: str | None
    """The launch check; null for imported measurements."""
    probe: str
    """The probe."""
    operation: str
    """The operation that ran."""
    shape: Mapping[str, Any] = field(compare=False)
    """Sizes, number format and kernel."""
    quantity: str
    """Measured quantity, by the suffix of its unit: seconds, bytes, bytes_per_s, gpu_hours."""
    value: float
    """Median over the repeats."""
    low: float
    """10th percentile over the repeats."""
    high: float
    """90th percentile over the repeats."""
    repeats: int
    """Number of repeats."""
    relative_error_fraction: float | None
    """Error of its result against higher precision; null where it was not compared."""
    predicted_value: float | None
    """Prediction at that time; null where no formula predicts it alone."""
    kind: str
    """Kind of device: cuda, rocm, cpu or other."""
    device: str
    """Name of the device."""
    gpu: str | None
    """Catalogue name of the device; null where the catalogue does not have it."""
    environment: Mapping[str, Any] = field(compare=False)
    """Hardware and software that it was measured on."""
    fingerprint: str
    """Digest of the device and the software that measured: equal ones may be compared."""
    formulas: str
    """Version of the formulas that predicted."""
    calibration: str | None
    """Calibration that predicted; null where none did."""
    quarantined_at: str | None
    """Start of its quarantine, in which nothing is fitted on it; null outside quarantine."""
    reason: str | None
    """Reason of the quarantine."""
    owner: str
    """Owner."""


def store_measurements_in(connection: sa.Connection, rows: Iterable[Measured]) -> None:
    """Store measurements in the caller's transaction; existing ones stay as they are."""
    records = [values_of(MEASUREMENTS, row) for row in rows]
    if records:
        connection.execute(insert_new(connection, MEASUREMENTS), records)


def read_measurements(
    engine: sa.Engine,
    ids: Sequence[str] | None = None,
    owner: str | None = None,
    values: Mapping[str, Collection[str]] | None = None,
) -> list[Measured]:
    """Measurements with these ids, owner and column values; all without a condition."""
    matches = (MEASUREMENTS.c[name].in_(sorted(allowed)) for name, allowed in (values or {}).items())
    conditions = [*matches, *_of_owner(owner)]
    with answering(), reading(engine) as connection:
        if ids is None:
            return measurements_in(connection, *conditions)
        parts = (ids[place : place + MOST_NAMED] for place in range(0, len(ids), MOST_NAMED))
        return [row for part in parts for row in measurements_in(connection, MEASUREMENTS.c.id.in_(part), *conditions)]


def read_measurements_of(engine: sa.Engine, owner: str | None, part: RowPart | None) -> list[Measured]:
    """Measurements of an owner, in parts where they are many."""
    columns = MEASUREMENTS.c
    query = part_of(_ALL.where(*_of_owner(owner)), engine, part, columns.id, columns.measured_at)
    with answering(), reading(engine) as connection:
        return list(_measured_by(connection, query))


def each_measurement(engine: sa.Engine, owner: str | None) -> Iterator[Measured]:
    """Measurements of an owner, one after the other, with a few in memory at a time."""
    with answering(), reading(engine) as connection:
        yield from _measured_by(connection, _ALL.where(*_of_owner(owner)))


def measurements_outside_quarantine(
    engine: sa.Engine, owner: str | None, device: str, since: datetime
) -> list[Measured]:
    """Measurements of a device since a moment that are not in quarantine."""
    columns = MEASUREMENTS.c
    conditions = (columns.device == device, columns.measured_at >= since, columns.quarantined_at.is_(None))
    with answering(), reading(engine) as connection:
        return measurements_in(connection, *conditions, *_of_owner(owner))


def measurements_like(connection: sa.Connection, rows: Collection[Measured], most: int) -> list[Measured]:
    """Newest measurements like the rows in owner, device, software and shape, not in quarantine."""
    columns = MEASUREMENTS.c
    names = ("owner", "device", "fingerprint", "probe", "operation")
    is_alike = [columns[name].in_(sorted({getattr(row, name) for row in rows})) for name in names]
    candidates = _ALL.where(columns.quarantined_at.is_(None), *is_alike)
    shape_keys = {shape_key(row.shape) for row in rows}
    stored_shapes = connection.scalars(candidates.with_only_columns(_SHAPE).distinct())
    shapes = [text for text in stored_shapes if shape_key(loads(text)) in shape_keys]
    identity = (*(columns[name] for name in names), columns.quantity, _SHAPE)
    age = (
        sa.func.row_number().over(partition_by=identity, order_by=(columns.measured_at.desc(), columns.id)).label("age")
    )
    alike_rows: list[Measured] = []
    for place in range(0, len(shapes), MOST_NAMED):
        numbered = candidates.where(_SHAPE.in_(shapes[place : place + MOST_NAMED])).add_columns(age).subquery()
        alike_rows += _measured_by(connection, sa.select(numbered).where(numbered.c.age <= most))
    return alike_rows


def shape_key(shape: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The sizes, number format and kernel of a shape, without its name."""
    return tuple(sorted((name, str(value)) for name, value in shape.items() if name != "name"))


def _of_owner(owner: str | None) -> list[sa.ColumnElement[bool]]:
    return [] if owner is None else [MEASUREMENTS.c.owner == owner]


def measurements_in(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[Measured]:
    return list(_measured_by(connection, _ALL.where(*conditions)))


def quarantine_measurements(engine: sa.Engine, ids: Sequence[str], moment: datetime | None, reason: str | None) -> None:
    """Exclude measurements from calibrations, or include them again."""
    changed = sa.update(MEASUREMENTS).values(quarantined_at=moment, reason=reason)
    with answering(), writing(engine) as connection:
        for place in range(0, len(ids), MOST_NAMED):
            connection.execute(changed.where(MEASUREMENTS.c.id.in_(ids[place : place + MOST_NAMED])))
        log_change_in(connection, *ids)


def _measured_by(connection: sa.Connection, query: sa.Select[Any]) -> Iterator[Measured]:
    """Measurements of a query, one after the other; equal shapes and environments share one object."""
    read = lru_cache(maxsize=TEXTS_CACHED)(loads)
    for row in connection.execute(query, execution_options={"yield_per": AT_ONCE}).mappings():
        yield row_as(Measured, row, **{name: read(row[name]) for name in _TEXTS})


_TEXTS = tuple(one.name for one in MEASUREMENTS.c if isinstance(one.type, sa.JSON))
_SHAPE = sa.cast(MEASUREMENTS.c.shape, sa.Text)
_ALL = sa.select(*(sa.cast(one, sa.Text).label(one.name) if one.name in _TEXTS else one for one in MEASUREMENTS.c))
"""All measurements, with JSON values as texts: equal texts are parsed once."""


CalibrationStatus = Literal["draft", "promoted", "retired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One calibration: constants of a device, the measurements that they were fitted on, and their errors."""

    id: str
    """Id, which answers name: cal_ and a digest of its constants and measurements."""
    status: CalibrationStatus
    """draft, promoted (it holds for its GPU) or retired."""
    gpu: str | None
    """Catalogue name of the device; null where the catalogue does not have it, so that no answer can use it."""
    device: str
    """Name of the device."""
    note: str
    """A note; empty where none was written."""
    held_out_fraction: float | None
    """Mean error on measurements that had no part in the fit; null where none could be held out."""
    before_fraction: float | None
    """Mean error of the earlier predictions on the same measurements."""
    in_sample_fraction: float | None
    """Mean error on the measurements of the fit."""
    parts: tuple[Mapping[str, Any], ...] = field(compare=False)
    """The errors by probe."""
    constants: Mapping[str, Any] = field(compare=False)
    """Constants that replace published rates."""
    fitted_on: tuple[str, ...] = field(compare=False)
    """Ids of the measurements that it was fitted on."""
    formulas: str
    """Version of the formulas that it was fitted with."""
    replaces: str | None
    """Calibration that was promoted at the time of the fit. This one is compared with it and can replace no other; null
    where none was promoted."""
    created_at: str
    """When it was fitted, in UTC."""
    promoted_at: str | None
    """When it was promoted last; null where it never was."""
    retired_at: str | None
    """When it was rolled back or retired; null where it was not."""
    owner: str
    """Owner."""
    scope: Scope = "owner"
    """Answers that use it while it is promoted: its owner's, or everyone's."""


def create_calibration(engine: sa.Engine, calibration: Calibration) -> Calibration:
    """Store a calibration; if its id is stored and not promoted, replace only the comparison."""
    with answering(), writing(engine) as connection:
        stored = calibration_in(connection, calibration.id)
        if stored is None:
            connection.execute(sa.insert(CALIBRATIONS), values_of(CALIBRATIONS, calibration))
            log_change_in(connection, calibration.id)
            return calibration
        if stored.status != "promoted":
            compared = {name: getattr(calibration, name) for name in _COMPARED}
            connection.execute(sa.update(CALIBRATIONS).where(CALIBRATIONS.c.id == stored.id).values(compared))
            stored = replace(stored, **compared)
        return stored


def read_calibrations(engine: sa.Engine, owner: str | None = None) -> list[Calibration]:
    """Calibrations of an owner, and all that were promoted for everyone, which answers may name."""
    is_visible = sa.or_(
        CALIBRATIONS.c.owner == owner,
        sa.and_(CALIBRATIONS.c.scope == "everyone", CALIBRATIONS.c.promoted_at.is_not(None)),
    )
    query = sa.select(CALIBRATIONS) if owner is None else sa.select(CALIBRATIONS).where(is_visible)
    with answering(), reading(engine) as connection:
        return [row_as(Calibration, row) for row in connection.execute(query).mappings()]


def read_calibration(engine: sa.Engine, calibration_id: str) -> Calibration | None:
    with answering(), reading(engine) as connection:
        return calibration_in(connection, calibration_id)


def calibration_in(connection: sa.Connection, calibration_id: str) -> Calibration | None:
    """One calibration, in the caller's transaction."""
    query = sa.select(CALIBRATIONS).where(CALIBRATIONS.c.id == calibration_id)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else row_as(Calibration, row)


def mark_promoted_in(
    connection: sa.Connection, calibration: Calibration, moment: datetime, scope: Scope, *, retires: str | None
) -> None:
    """Mark a calibration as promoted, in the caller's transaction."""
    if retires is not None:
        mark_retired_in(connection, retires, moment)
    values = {"status": "promoted", "promoted_at": moment, "retired_at": None, "scope": scope}
    connection.execute(sa.update(CALIBRATIONS).where(CALIBRATIONS.c.id == calibration.id).values(values))
    log_change_in(connection, calibration.id)


def retire_calibration(engine: sa.Engine, calibration_id: str, moment: datetime) -> None:
    """Retire a calibration that is not promoted."""
    with answering(), writing(engine) as connection:
        mark_retired_in(connection, calibration_id, moment)


def mark_retired_in(connection: sa.Connection, calibration_id: str, moment: datetime) -> None:
    """Mark a calibration as retired or replaced, in the caller's transaction."""
    values = {"status": "retired", "retired_at": moment}
    connection.execute(sa.update(CALIBRATIONS).where(CALIBRATIONS.c.id == calibration_id).values(values))
    log_change_in(connection, calibration_id)


_COMPARED = ("replaces", "parts", "before_fraction", "held_out_fraction", "in_sample_fraction")
