"""Lists and details of measurements, and their quarantine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import inf, isfinite
from typing import Annotated, Any, ClassVar

from annotated_types import Len

from service.answers.names import Published
from service.calibration.records import Environment, Shape
from service.errors import NotFound, Problem, Refused
from service.estimator.question import STRICT, Name
from service.store import Engine
from service.store.keys import Caller
from service.store.measurements import Measured, quarantine_measurements, read_measurements, read_measurements_of
from service.tabular.columns import Column, columns_of
from service.tabular.lists import Listed, Record, as_record, listed_in_parts
from service.validation.reading import read_spec
from service.validation.text import checked_texts

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
"""Columns from the environment."""


def shape_text(shape: Mapping[str, Any]) -> str:
    """A shape as one text.

    >>> shape_text({"rows": 4096, "dtype": "bf16"})
    'dtype=bf16 rows=4096'
    """
    return " ".join(f"{name}={value}" for name, value in sorted(shape.items()))


def _shape(measured: Measured) -> str:
    return shape_text(measured.shape)


def _ratio(measured: Measured) -> float | None:
    ratio = measured.value / measured.predicted_value if measured.predicted_value else inf
    return ratio if isfinite(ratio) else None


def _environment_value(name: str, measured: Measured) -> Any:
    return measured.environment.get(name)


def _columns() -> Iterator[Column]:
    """Columns of the list: fields, the shape as one text, the ratio, and versions of the environment."""
    for column in columns_of(Measured):
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
"""Columns of the list, the key first."""


def listed_measurements(engine: Engine, caller: Caller) -> Listed:
    """List of measurements."""
    read = partial(read_measurements_of, engine, caller.visible_owner)
    return listed_in_parts(COLUMNS, read, "measured_at", NEWEST_FIRST)


def find_measurement(engine: Engine, caller: Caller, measurement_id: str) -> Measured:
    """One measurement."""
    rows = read_measurements(engine, [measurement_id], caller.visible_owner)
    if not rows:
        raise NotFound(UNKNOWN_MEASUREMENT)
    return rows[0]


def measurement_record(measured: Measured) -> Record:
    """A measurement as a resource."""
    return {**as_record(COLUMNS, measured), "shape": measured.shape, "environment": measured.environment}


MOST_IDS = 1_000
"""Measurements of one request. Source: a choice; one answer lists no more rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """Measurements by their ids."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    ids: Annotated[tuple[Name, ...], Len(1, MOST_IDS)]
    """Their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRequest:
    """Measurements that are not to be trusted, and why."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    ids: Annotated[tuple[Name, ...], Len(1, MOST_IDS)]
    """Their ids."""
    reason: Annotated[str, Len(1, 500)]
    """Why nothing should be fitted on them."""


def quarantine(engine: Engine, caller: Caller, body: Mapping[str, Any]) -> Record:
    """Quarantine measurements, so that no calibration is fitted to them."""
    request = read_spec(QuarantineRequest, checked_texts(body), "")
    return _changed(engine, caller, request.ids, request.reason)


def release(engine: Engine, caller: Caller, body: Mapping[str, Any]) -> Record:
    """Release measurements from quarantine."""
    return _changed(engine, caller, read_spec(ReleaseRequest, body, "").ids, None)


def _changed(engine: Engine, caller: Caller, ids: tuple[str, ...], reason: str | None) -> Record:
    known = {row.id for row in read_measurements(engine, ids, caller.visible_owner)}
    missing = len(set(ids) - known)
    if missing:
        message = f"{missing} of the {len(set(ids))} ids are those of no measurement, so nothing was changed"
        fix = "take ids from GET /v1/measurements"
        raise Refused(Problem(field="ids", code="not_found", message=message, fix=fix))
    quarantine_measurements(engine, ids, None if reason is None else datetime.now(UTC), reason)
    rows = sorted(read_measurements(engine, ids), key=lambda row: row.id)
    return {"items": [as_record(COLUMNS, row) for row in rows]}
