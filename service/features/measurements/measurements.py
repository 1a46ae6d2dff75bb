"""Measurements: stored with their predictions or quarantined if doubtful, listed, and released."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from math import inf, isfinite
from typing import Annotated, Any

from annotated_types import Len

from service.answers.names import Published
from service.calibration.observations import Observed, impossible, outlier_reason
from service.calibration.records import Environment, ProbeRecord, Shape, fault_of, quality_flag_of
from service.errors import NotFound, Problem, Refused
from service.estimator import FORMULAS_VERSION
from service.estimator.question import Gpu, Name, Strict
from service.store import Connection, Engine, measurements
from service.store.engine import utc_text
from service.store.keys import TEAM, Caller
from service.tabular.lists import Column, Listed, Record, as_record, columns_of, listed_in_parts
from service.validation.devices import is_possible, observation_of
from service.validation.json_text import checked_texts
from service.validation.reading import digest_of, fields_of, read_spec, to_bytes

Predict = Callable[[Observed], float | None]

MOST_ERROR_FRACTION = 0.1
"""Error of a result above which its kernel is wrong. Source: a choice; fp8 products are off by 0.05."""
MOST_LIKE = 256
"""Most measurements to compare another one with. Source: a choice; a median needs no more."""

CHANGING = frozenset({"clock_hz", "throttle_reasons", "other_processes", "devices"})
"""Fields of an environment that change from minute to minute, or with other work on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    source: str
    run: str
    """What was measured together."""
    measured_at: str
    owner: str
    is_dated: bool = True
    """Whether the moment was given; otherwise ids do not depend on it."""
    launch_check_id: str | None = None
    gpu: str | None = None
    """Catalogue name of the device; None where the catalogue does not hold it."""
    calibration: str | None = None


def now_text() -> str:
    return utc_text(datetime.now(UTC))


def measurements_in(
    connection: Connection, records: Sequence[ProbeRecord], origin: Origin, predict: Predict, gpu: Gpu | None
) -> list[measurements.Measured]:
    """Store measurements in the transaction of the caller."""
    rows = list(_rows(records, origin, predict))
    checked = quarantined(rows, measurements.measurements_like(connection, rows, MOST_LIKE), gpu)
    measurements.store_measurements_in(connection, checked)
    return checked


def quarantined(
    rows: Sequence[measurements.Measured], known: Sequence[measurements.Measured], gpu: Gpu | None = None
) -> list[measurements.Measured]:
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


def _rows(records: Sequence[ProbeRecord], origin: Origin, predict: Predict) -> Iterator[measurements.Measured]:
    for record in records:
        environment = record.environment
        environment_fields = asdict(environment) if environment is not None else {}
        fingerprint = fingerprint_of(environment_fields)
        for place, one in enumerate(record.measurements if environment is not None else ()):
            moment = origin.measured_at if origin.is_dated else None
            id_parts = [*id_scope(origin.owner), origin.run, moment, record.probe, place, asdict(one)]
            row = measurements.Measured(
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


def _identity(row: measurements.Measured) -> object:
    return row.device, row.fingerprint, row.probe, row.operation, row.quantity, measurements.shape_key(row.shape)


def _quality_problem(row: measurements.Measured, gpu: Gpu | None) -> str | None:
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


PATH = "/v1/measurements"
NEWEST_FIRST = "-measured_at"
UNKNOWN_MEASUREMENT = f"there is no measurement of this id; GET {PATH} lists the ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementDetail:
    """Fields of a measurement as objects, beside those of its list."""

    shape: Shape
    """Sizes, number format and kernel: what tells it from other measurements of its probe."""
    environment: Environment
    """What it was measured on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementItems:
    """Some measurements."""

    items: tuple[Annotated[Any, Published("MeasurementRow")], ...]
    """The measurements."""


ENVIRONMENT_COLUMNS = ("driver", "runtime", "torch", "nccl")


def shape_text(shape: Mapping[str, Any]) -> str:
    """A shape as one text.

    >>> shape_text({"rows": 4096, "dtype": "bf16"})
    'dtype=bf16 rows=4096'
    """
    return " ".join(f"{name}={value}" for name, value in sorted(shape.items()))


def _ratio(measured: measurements.Measured) -> float | None:
    ratio = measured.value / measured.predicted_value if measured.predicted_value else inf
    return ratio if isfinite(ratio) else None


def _environment_value(name: str, measured: measurements.Measured) -> Any:
    return measured.environment.get(name)


def _shape(measured: measurements.Measured) -> str:
    """The shape as a text; a function with a name, because another process computes large tables."""
    return shape_text(measured.shape)


def _columns() -> Iterator[Column]:
    """Columns of the list: fields, the shape as one text, the ratio, and versions of the environment."""
    for column in columns_of(measurements.Measured):
        if column.name == "shape":
            schema = {"type": "string", "description": "Sizes, number format and kernel: name=value, by name."}
            yield Column("shape", _shape, schema)
        elif column.name == "environment":
            for one in columns_of(Environment):
                if one.name in ENVIRONMENT_COLUMNS:
                    yield Column(one.name, partial(_environment_value, one.name), one.schema)
        else:
            yield column
        if column.name == "predicted_value":
            schema = {"description": "Measured over predicted; null where nothing was predicted."}
            yield Column("ratio", _ratio, {"anyOf": [{"type": "number"}, {"type": "null"}], **schema})


COLUMNS = tuple(_columns())


def listed_measurements(engine: Engine, caller: Caller) -> Listed:
    read = partial(measurements.read_measurements_of, engine, caller.visible_owner)
    return listed_in_parts(COLUMNS, read, "measured_at", NEWEST_FIRST)


def find_measurement(engine: Engine, caller: Caller, measurement_id: str) -> Record:
    rows = measurements.read_measurements(engine, [measurement_id], caller.visible_owner)
    if not rows:
        raise NotFound(UNKNOWN_MEASUREMENT)
    return {**as_record(COLUMNS, rows[0]), "shape": rows[0].shape, "environment": rows[0].environment}


MOST_IDS = 1_000
"""Measurements of one request. Source: a choice; one answer lists no more rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest(Strict):
    """Measurements by their ids."""

    ids: Annotated[tuple[Name, ...], Len(1, MOST_IDS)]
    """Their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRequest(Strict):
    """Measurements that are not to be trusted, and why."""

    ids: Annotated[tuple[Name, ...], Len(1, MOST_IDS)]
    """Their ids."""
    reason: Annotated[str, Len(1, 500)]
    """Why nothing should be fitted on them."""


def quarantine(engine: Engine, caller: Caller, body: Mapping[str, Any]) -> Record:
    """Quarantine measurements, so that no calibration is fitted to them."""
    request = read_spec(QuarantineRequest, checked_texts(body), "")
    return _changed(engine, caller, request.ids, request.reason)


def release(engine: Engine, caller: Caller, body: Mapping[str, Any]) -> Record:
    return _changed(engine, caller, read_spec(ReleaseRequest, body, "").ids, None)


def _changed(engine: Engine, caller: Caller, ids: tuple[str, ...], reason: str | None) -> Record:
    known = {row.id for row in measurements.read_measurements(engine, ids, caller.visible_owner)}
    missing = len(set(ids) - known)
    if missing:
        message = f"{missing} of the {len(set(ids))} ids are those of no measurement, so nothing was changed"
        fix = "take ids from GET /v1/measurements"
        raise Refused(Problem(field="ids", code="not_found", message=message, fix=fix))
    measurements.quarantine_measurements(engine, ids, None if reason is None else datetime.now(UTC), reason)
    rows = sorted(measurements.read_measurements(engine, ids), key=lambda row: row.id)
    return {"items": [as_record(COLUMNS, row) for row in rows]}
