"""Fitted calibrations with their measurements and errors. Their constants never change."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Engine, and_, insert, or_, select, update

from service.catalogue.provenance import Scope
from service.store.audit import log_change_in
from service.store.engine import answering, reading, writing
from service.store.queries import utc_text
from service.store.tables import CALIBRATIONS

CalibrationStatus = Literal["draft", "promoted", "retired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One calibration: constants of a device, what they were fitted on, and how far off they are."""

    id: str
    """What it is read by, and what answers name: cal_ and a digest of its constants and measurements."""
    status: CalibrationStatus
    """draft, promoted (it holds for its GPU) or retired."""
    gpu: str | None
    """Catalogue name of the device; null where the catalogue does not hold it, so that no answer could rest on it."""
    device: str
    """Name of the device."""
    note: str
    """What to know about it; empty where nobody wrote anything."""
    held_out_fraction: float | None
    """Mean error on what had no part in the fit; null where nothing could be held out."""
    before_fraction: float | None
    """The same of what was predicted before."""
    in_sample_fraction: float | None
    """The same of what it was fitted on."""
    parts: tuple[Mapping[str, Any], ...] = field(compare=False)
    """The errors by probe."""
    constants: Mapping[str, Any] = field(compare=False)
    """What stands in the place of published rates."""
    fitted_on: tuple[str, ...] = field(compare=False)
    """Ids of the measurements that it was fitted on."""
    formulas: str
    """Version of the formulas that it was fitted with."""
    replaces: str | None
    """Calibration that held when it was fitted, with which it is compared and whose place alone it may take; null where
    none did."""
    created_at: str
    """When it was fitted, in UTC."""
    promoted_at: str | None
    """When it was promoted last; null where it never was."""
    retired_at: str | None
    """When it was taken back or given up; null where it was not."""
    owner: str
    """Whose it is."""
    scope: Scope = "owner"
    """Whose answers rest on it while it is promoted: its owner's, or everyone's."""


def create_calibration(engine: Engine, calibration: Calibration) -> Calibration:
    """Store a calibration; of an inactive one with the same id, only the comparison changes."""
    with answering(), writing(engine) as connection:
        held = calibration_in(connection, calibration.id)
        if held is None:
            connection.execute(insert(CALIBRATIONS), _record(calibration))
            log_change_in(connection, calibration.id)
            return calibration
        if held.status != "promoted":
            record = _record(calibration)
            changed = update(CALIBRATIONS).where(CALIBRATIONS.c.id == held.id)
            connection.execute(changed.values({name: record[name] for name in _COMPARED}))
            held = replace(held, **{name: getattr(calibration, name) for name in _COMPARED})
        return held


def read_calibrations(engine: Engine, owner: str | None = None) -> list[Calibration]:
    """Calibrations of an owner, and all that were promoted for everyone, which answers may name."""
    seen = or_(
        CALIBRATIONS.c.owner == owner, and_(CALIBRATIONS.c.scope == "everyone", CALIBRATIONS.c.promoted_at.is_not(None))
    )
    query = select(CALIBRATIONS) if owner is None else select(CALIBRATIONS).where(seen)
    with answering(), reading(engine) as connection:
        return [_calibration(row) for row in connection.execute(query).mappings()]


def read_calibration(engine: Engine, calibration_id: str) -> Calibration | None:
    """One calibration."""
    with answering(), reading(engine) as connection:
        return calibration_in(connection, calibration_id)


def calibration_in(connection: Connection, calibration_id: str) -> Calibration | None:
    """One calibration."""
    query = select(CALIBRATIONS).where(CALIBRATIONS.c.id == calibration_id)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _calibration(row)


def promoted_in(
    connection: Connection, calibration: Calibration, moment: datetime, scope: Scope, *, retires: str | None
) -> None:
    """Mark a calibration as promoted, in the transaction that promotes it."""
    if retires is not None:
        retired_in(connection, retires, moment)
    values = {"status": "promoted", "promoted_at": moment, "retired_at": None, "scope": scope}
    connection.execute(update(CALIBRATIONS).where(CALIBRATIONS.c.id == calibration.id).values(values))
    log_change_in(connection, calibration.id)


def retire_calibration(engine: Engine, calibration_id: str, moment: datetime) -> None:
    """Retire a calibration that is not promoted."""
    with answering(), writing(engine) as connection:
        retired_in(connection, calibration_id, moment)


def retired_in(connection: Connection, calibration_id: str, moment: datetime) -> None:
    """Mark a calibration as retired, or as replaced, in the transaction that does so."""
    values = {"status": "retired", "retired_at": moment}
    connection.execute(update(CALIBRATIONS).where(CALIBRATIONS.c.id == calibration_id).values(values))
    log_change_in(connection, calibration_id)


def _record(calibration: Calibration) -> dict[str, Any]:
    record = asdict(calibration)
    dates = {name: record[name] and datetime.fromisoformat(record[name]) for name in _DATES}
    return {**record, **dates, "parts": list(calibration.parts), "fitted_on": list(calibration.fitted_on)}


def _calibration(row: Mapping[Any, Any]) -> Calibration:
    values = {name: row[name] for name in _NAMES}
    found = Calibration(**{**values, **{name: values[name] and utc_text(values[name]) for name in _DATES}})
    return replace(found, parts=tuple(found.parts), fitted_on=tuple(found.fitted_on))


_NAMES = tuple(one.name for one in fields(Calibration))
_DATES = ("created_at", "promoted_at", "retired_at")
_COMPARED = ("replaces", "parts", "before_fraction", "held_out_fraction", "in_sample_fraction")
"""Fields of the comparison with another calibration."""
