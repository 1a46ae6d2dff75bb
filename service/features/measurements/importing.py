"""Import of measurements from probe records or from tables of other tools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from annotated_types import Len

from service.calibration.observations import Observed, predicted_value, processor_of
from service.calibration.records import Environment, ProbeRecord, fault_of
from service.catalogue import Catalogue
from service.catalogue.catalogue import calibrated_gpu
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.constants import calibration_id
from service.estimator.question import DESCRIBED, STRICT, Gpu
from service.features.measurements.measurements import Origin, measurements_in
from service.store import Engine
from service.store.engine import answering, utc_text, writing
from service.store.keys import Caller
from service.store.measurements import Measured
from service.store.requests import log_change_in
from service.validation.devices import gpu_of_device
from service.validation.problems import not_an_object
from service.validation.serialization import digest_of, to_bytes
from service.validation.specs import field_names, read_spec

MOST_RECORDS = 64
"""Most records of a request. Source: a choice; a launch check has eight."""

Words = Annotated[str, Len(1, 200)]
"""A name or a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsBody:
    """Records of probes that ran anywhere."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    records: Annotated[tuple[ProbeRecord, ...], Len(1, MOST_RECORDS)]
    """What came of each probe, as the worker's record.json tells it."""
    source: Words = "records"
    """Who measured, in words."""
    run: Words | None = None
    """What was measured together; what this request brings where absent."""
    measured_at: Words | None = None
    """When, RFC 3339; now where absent."""


def read_records(body: Mapping[str, Any]) -> RecordsBody:
    """Parse a request body."""
    if not isinstance(body, Mapping):
        raise Refused(not_an_object("", field_names(RecordsBody)))
    read = read_spec(RecordsBody, body, "")
    problems = [
        Problem(field=f"records.{place}.{name}", code=code, message=message, fix=fix)
        for place, record in enumerate(read.records)
        for name, code, message, fix in _faults(record)
    ]
    if problems:
        raise Refused(*problems[:MOST_PROBLEMS])
    return read


def parse_moment(text: str | None) -> datetime:
    """Parse a moment; now if missing."""
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        message = "measured_at is no moment with a time zone"
        fix = "write it as 2026-11-23T08:00:00Z, or leave it out"
        raise Refused(Problem(field="measured_at", code="not_a_moment", message=message, fix=fix))
    return moment


def _faults(record: ProbeRecord) -> list[tuple[str, str, str, str]]:
    """Unreadable parts of a record: field, code, message, fix."""
    if record.measurements and record.environment is None:
        message = "the record does not say what was measured on, so it could be compared with nothing"
        return [("environment", "required", message, "give the environment that the worker wrote")]
    faults = []
    for place, measurement in enumerate(record.measurements):
        fault = fault_of(record.probe, measurement)
        if fault is not None:
            name, message = fault
            fix = f"see what the probe {record.probe} writes, or leave this measurement out"
            faults.append((f"measurements.{place}.{name}", "unreadable", message, fix))
    return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMeasurements:
    """What came in."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    run: str
    """What was measured together: filter the list by it, and fit on it."""
    measurements: int
    """Measurements that came in."""
    quarantined: int
    """Those of them that nothing is fitted on; the list says why."""
    ids: tuple[str, ...]
    """What each is read by."""


def import_records(
    engine: Engine, catalogue: Catalogue, caller: Caller, body: Mapping[str, Any]
) -> ImportedMeasurements:
    """Store the records of a request."""
    read = read_records(body)
    measured_at = utc_text(parse_moment(read.measured_at))
    origin = Origin(
        source=read.source,
        run=read.run or run_of(read.records),
        measured_at=measured_at,
        is_dated=read.measured_at is not None,
        owner=caller.owner,
    )
    return import_all(engine, catalogue, read.records, origin)


def run_of(records: Sequence[ProbeRecord]) -> str:
    """Name of an unnamed run: equal for copies of a file."""
    return f"run_{digest_of(to_bytes([asdict(record) for record in records]))[:12]}"


def import_all(
    engine: Engine, catalogue: Catalogue, records: Sequence[ProbeRecord], origin: Origin
) -> ImportedMeasurements:
    """Store parsed records."""
    stored: list[Measured] = []
    by_environment: dict[Environment, list[ProbeRecord]] = {}
    for record in records:
        if record.environment is not None:
            by_environment.setdefault(record.environment, []).append(record)
    with answering(), writing(engine) as connection:
        for environment, own in by_environment.items():
            gpu = known_gpu(environment, catalogue)
            known = (None, None) if gpu is None else (gpu.slug, calibration_id(gpu))
            stored += measurements_in(
                connection, own, replace(origin, gpu=known[0], calibration=known[1]), predictor(gpu), gpu
            )
        log_change_in(connection, f"measurements?run={origin.run}")
    return ImportedMeasurements(
        run=origin.run,
        measurements=len(stored),
        quarantined=sum(row.quarantined_at is not None for row in stored),
        ids=tuple(row.id for row in stored),
    )


def known_gpu(environment: Environment, catalogue: Catalogue) -> Gpu | None:
    """Catalogue GPU of an environment."""
    slug = gpu_of_device(environment.device, environment.memory_bytes or None, catalogue)
    return None if slug is None else calibrated_gpu(slug, catalogue)


def predictor(gpu: Gpu | None) -> Callable[[Observed], float | None]:
    """Predictor of measurements of a device."""

    def predict(observed: Observed) -> float | None:
        if gpu is not None:
            return predicted_value(observed, gpu)
        is_processor = observed.environment.kind == "cpu"
        return predicted_value(observed, processor_of(observed.environment)) if is_processor else None

    return predict
