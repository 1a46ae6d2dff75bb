"""Incoming measurements: stored with their predictions, or quarantined if doubtful."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from service.calibration.observations import Observed, impossible, outlier_reason
from service.calibration.records import ProbeRecord, fault_of, quality_flag_of
from service.estimator import FORMULAS_VERSION
from service.estimator.question import Gpu
from service.store import Connection
from service.store.engine import utc_text
from service.store.keys import TEAM
from service.store.measurements import Measured, measurements_like, shape_key, store_measurements_in
from service.validation.devices import is_possible, observation_of
from service.validation.reading import fields_of
from service.validation.serialization import digest_of, to_bytes

Predict = Callable[[Observed], float | None]
"""Predictor of a measurement, in its own unit."""

MOST_ERROR_FRACTION = 0.1
"""Error of a result above which its kernel is wrong. Source: a choice; fp8 products are off by 0.05."""

MOST_LIKE = 256
"""Most measurements to compare another one with. Source: a choice; a median needs no more."""

CHANGING = frozenset({"clock_hz", "throttle_reasons", "other_processes", "devices"})
"""Fields of an environment that change from minute to minute, or with other work on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of measurements."""

    source: str
    """Name of the source."""
    run: str
    """What was measured together."""
    measured_at: str
    """When, in UTC."""
    owner: str
    """Owner of the measurements."""
    is_dated: bool = True
    """Whether the moment was given; otherwise ids do not depend on it."""
    launch_check_id: str | None = None
    """The launch check; None for what was imported."""
    gpu: str | None = None
    """Catalogue name of the device; None where the catalogue does not hold it."""
    calibration: str | None = None
    """Calibration of the predictions; None without one."""


def now_text() -> str:
    """The current time as text."""
    return utc_text(datetime.now(UTC))


def measurements_in(
    connection: Connection, records: Sequence[ProbeRecord], origin: Origin, predict: Predict, gpu: Gpu | None
) -> list[Measured]:
    """Store measurements in the transaction of the caller."""
    rows = list(_rows(records, origin, predict))
    checked = quarantined(rows, measurements_like(connection, rows, MOST_LIKE), gpu)
    store_measurements_in(connection, checked)
    return checked


def quarantined(rows: Sequence[Measured], known: Sequence[Measured], gpu: Gpu | None = None) -> list[Measured]:
    """Quarantine the doubtful ones of some measurements."""
    others: dict[object, dict[str, float]] = {}
    for row in (
        *(row for row in known if is_possible(row, gpu)),
        *(row for row in rows if _quality_problem(row, gpu) is None),
    ):
        like = others.setdefault(_identity(row), {})
        if len(like) < MOST_LIKE or row.id in like:
            like[row.id] = row.value
    checked = []
    for row in rows:
        values = [value for name, value in others.get(_identity(row), {}).items() if name != row.id]
        reason = _quality_problem(row, gpu) or outlier_reason(row.value, values)
        checked.append(row if reason is None else replace(row, quarantined_at=now_text(), reason=reason))
    return checked


def fingerprint_of(environment: Mapping[str, Any]) -> str:
    """Digest of an environment; measurements with equal ones are comparable."""
    fields = {name: value for name, value in sorted(environment.items()) if value not in ((), [])}
    lasting = {name: value for name, value in fields.items() if name not in CHANGING}
    return digest_of(to_bytes(lasting))[:12]


def id_scope(owner: str) -> tuple[str, ...]:
    """Parts of ids that separate equal measurements of different owners."""
    return () if owner == TEAM else (owner,)


def _rows(records: Sequence[ProbeRecord], origin: Origin, predict: Predict) -> Iterator[Measured]:
    for record in records:
        environment = record.environment
        environment_fields = asdict(environment) if environment is not None else {}
        fingerprint = fingerprint_of(environment_fields)
        for place, one in enumerate(record.measurements if environment is not None else ()):
            moment = origin.measured_at if origin.is_dated else None
            id_parts = [*id_scope(origin.owner), origin.run, moment, record.probe, place, asdict(one)]
            row = Measured(
                **{name: value for name, value in fields_of(origin).items() if name != "is_dated"},
                **{**fields_of(one), "shape": dict(one.shape)},
                id=f"msr_{digest_of(to_bytes(id_parts))}",
                probe=record.probe,
                predicted_value=None,
                kind=environment_fields["kind"],
                device=environment_fields["device"],
                environment=environment_fields,
                fingerprint=fingerprint,
                formulas=FORMULAS_VERSION,
                quarantined_at=None,
                reason=None,
            )
            yield replace(row, predicted_value=predict(observation_of(row)))


def _identity(row: Measured) -> object:
    """Identity of the measured quantity on a device."""
    return row.device, row.fingerprint, row.probe, row.operation, row.quantity, shape_key(row.shape)


def _quality_problem(row: Measured, gpu: Gpu | None) -> str | None:
    """Reason to doubt a measurement, whatever others show."""
    observed = observation_of(row)
    beyond = impossible(observed, None if row.kind == "cpu" else gpu)
    if beyond is not None:
        return beyond
    fault = fault_of(observed.probe, observed.measurement)
    if fault is not None:
        return f"unreadable: {fault[1]}"
    error = row.relative_error_fraction
    if error is not None and not error <= MOST_ERROR_FRACTION:
        return f"wrong: its result is off by {error:.3g} of the largest number"
    return quality_flag_of(observed.environment)
