"""Lists and details of measurements, and their quarantine."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from math import inf, isfinite
from typing import Annotated, Any, ClassVar

from annotated_types import Len

from service.calibration.records import Environment, Shape
from service.errors import NotFound, Problem, Refused
from service.estimator.question import DESCRIBED, STRICT, Name
from service.store import Engine
from service.store.engine import RowPart
from service.store.keys import Caller
from service.store.measurements import Measured, quarantine_measurements, read_measurements, read_measurements_of
from service.tabular.columns import Column, columns_of
from service.tabular.lists import Listed, Record, as_record, listed_in_parts
from service.validation.specs import read_spec
from service.validation.text import checked_texts

PATH = "/v1/measurements"
NEWEST_FIRST = "-measured_at"
NONE_SUCH = f"there is no measurement of this id; GET {PATH} lists the ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRow:
    """A measurement as tables hold it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    id: str
    """What it is read by."""
    measured_at: str
    """When it came in, or when it was taken where that was given, in UTC."""
    source: str
    """Who measured: a launch check, or what it was imported from."""
    run: str
    """What was measured together; calibrations are judged by runs that they never saw."""
    launch_check_id: str | None
    """The launch check; null for what was imported."""
    probe: str
    """Which probe: gemm, attention, bandwidth, elementwise, collective, context, step or profile; run: a whole job."""
    operation: str
    """What ran."""
    shape: str
    """Sizes, number format and kernel: name=value, in the order of the names."""
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
    """What was predicted when it came in; null where no formula speaks of it alone."""
    ratio: float | None
    """Measured over predicted; null where nothing was predicted."""
    kind: str
    """Kind of device: cuda, rocm, cpu or other."""
    device: str
    """Name of the device."""
    gpu: str | None
    """Catalogue name of the device; null where the catalogue does not hold it."""
    driver: str | None
    """Version of the driver."""
    runtime: str | None
    """Version of CUDA or ROCm."""
    torch: str | None
    """Version of torch."""
    nccl: str | None
    """Version of NCCL or RCCL."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementDetail:
    """What a measurement has as objects when it is read alone."""

    shape: Shape
    """Sizes, number format and kernel: what tells it from other measurements of its probe."""
    environment: Environment
    """What it was measured on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementItems:
    """Some measurements."""

    items: tuple[MeasurementRow, ...]
    """The measurements."""


_KEYED = {column.name: column for column in columns_of(MeasurementRow)}
COLUMNS: tuple[Column, ...] = (_KEYED.pop("id"), *_KEYED.values())
"""Columns of the list, the key first."""

_OF_ENVIRONMENT = ("driver", "runtime", "torch", "nccl")
"""Columns from the environment."""


def listed_measurements(engine: Engine, caller: Caller) -> Listed:
    """List of measurements."""

    def rows(part: RowPart | None) -> list[MeasurementRow]:
        return [row_of(one) for one in read_measurements_of(engine, caller.visible_owner, part)]

    return listed_in_parts(COLUMNS, rows, "measured_at", NEWEST_FIRST)


def find_measurement(engine: Engine, caller: Caller, measurement_id: str) -> Measured:
    """One measurement."""
    rows = read_measurements(engine, [measurement_id], caller.visible_owner)
    if not rows:
        raise NotFound(NONE_SUCH)
    return rows[0]


def measurement_record(measured: Measured) -> Record:
    """A measurement as a resource."""
    return {
        **as_record(COLUMNS, row_of(measured)),
        "shape": measured.shape,
        "environment": measured.environment,
    }


def row_of(measured: Measured) -> MeasurementRow:
    """A measurement as a row of a table."""
    same: dict[str, Any] = {name: getattr(measured, name) for name in _SAME}
    predicted = measured.predicted_value
    environment_values: dict[str, Any] = {name: measured.environment.get(name) for name in _OF_ENVIRONMENT}
    ratio = measured.value / predicted if predicted else inf
    return MeasurementRow(
        **same,
        **environment_values,
        shape=shape_text(measured.shape),
        ratio=ratio if isfinite(ratio) else None,
    )


def shape_text(shape: Mapping[str, Any]) -> str:
    """A shape as one text.

    >>> shape_text({"rows": 4096, "dtype": "bf16"})
    'dtype=bf16 rows=4096'
    """
    return " ".join(f"{name}={value}" for name, value in sorted(shape.items()))


_SAME = tuple({one.name for one in fields(MeasurementRow)} & {one.name for one in fields(Measured)} - {"shape"})
"""Fields of both classes."""


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
    return {"items": [as_record(COLUMNS, row_of(row)) for row in rows]}
