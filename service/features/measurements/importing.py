"""Import of measurements from probe records or from tables of other tools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from annotated_types import Ge, Len, Lt
from pydantic_core import from_json

from service.calibration import tool_files
from service.calibration.observations import Observed, predicted_value, processor_of
from service.calibration.records import Environment, ProbeRecord, fault_of
from service.catalogue import Catalogue
from service.catalogue.catalogue import calibrated_gpu
from service.errors import MOST_PROBLEMS, NotFound, Problem, Refused, refuse
from service.estimator.answer import CollectiveName
from service.estimator.constants import calibration_id
from service.estimator.question import Documented, Gpu, Strict
from service.features.measurements.measurements import Origin, measurements_in
from service.store import Engine
from service.store.engine import answering, utc_text, writing
from service.store.keys import UNRESTRICTED, Caller
from service.store.measurements import Measured
from service.store.requests import log_change_in
from service.validation.devices import gpu_of_device
from service.validation.flat import read_value
from service.validation.json_text import checked_texts
from service.validation.problems import not_an_object
from service.validation.reading import digest_of, field_names, read_spec, to_bytes

MOST_RECORDS = 64
"""Most records of a request. Source: a choice; a launch check has eight."""

Words = Annotated[str, Len(1, 200)]
"""A name or a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementsRequest(Strict):
    """Records of probes that ran anywhere."""

    records: Annotated[tuple[ProbeRecord, ...], Len(1, MOST_RECORDS)]
    """Result of each probe, in the form of the worker's record.json."""
    source: Words = "records"
    """Person or tool that measured."""
    run: Words | None = None
    """Name for what was measured together; where absent, this request is a run of its own."""
    measured_at: Words | None = None
    """Time of the measurements, RFC 3339; now where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementImportQuery(Strict):
    """Facts that a file does not contain."""

    operation: CollectiveName | None = None
    """Collective that nccl-tests measured, where its output does not say so (nccl-tests)."""
    device: Words | None = None
    """Name of the device, as its driver reports it (memory-snapshot)."""
    memory_bytes: Annotated[float, Ge(1e6), Lt(1e16)] | None = None
    """Memory of the device, where several devices share a name."""
    source: Words | None = None
    """Person or tool that measured; the format where absent."""
    run: Words | None = None
    """Name for what was measured together; where absent, this file is a run of its own."""
    measured_at: Words | None = None
    """Time of the measurements, RFC 3339; now where absent."""


def read_records(body: Mapping[str, Any]) -> MeasurementsRequest:
    if not isinstance(body, Mapping):
        raise Refused(not_an_object("", field_names(MeasurementsRequest)))
    read = read_spec(MeasurementsRequest, body, "")
    problems = [
        Problem(field=f"records.{place}.{name}", code=code, message=message, fix=fix)
        for place, record in enumerate(read.records)
        for name, code, message, fix in _faults(record)
    ]
    refuse(problems[:MOST_PROBLEMS])
    return read


def parse_moment(text: str | None) -> datetime:
    """Parse a time; now if missing."""
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        message = "measured_at is not a time with a time zone"
        fix = "write it as 2026-11-23T08:00:00Z, or leave it out"
        raise Refused(Problem(field="measured_at", code="not_a_moment", message=message, fix=fix))
    return moment


def _faults(record: ProbeRecord) -> list[tuple[str, str, str, str]]:
    if record.measurements and record.environment is None:
        message = "the record has no environment, so its measurements cannot be compared with others"
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
class ImportedMeasurements(Documented):
    """Result of an import."""

    run: str
    """Name of the run, by which you filter the list and choose measurements to fit."""
    measurements: int
    """Number of stored measurements."""
    quarantined: int
    """Number of those in quarantine, on which nothing is fitted; the list gives reasons."""
    ids: tuple[str, ...]
    """Ids of the measurements."""


def import_records(
    engine: Engine, catalogue: Catalogue, caller: Caller, body: Mapping[str, Any]
) -> ImportedMeasurements:
    """Store the records of a request."""
    read = read_records(body)
    return _stored(engine, catalogue, caller, read.records, read, read.source)


def _stored(
    engine: Engine,
    catalogue: Catalogue,
    caller: Caller,
    records: Sequence[ProbeRecord],
    given: MeasurementsRequest | MeasurementImportQuery,
    source: str,
) -> ImportedMeasurements:
    """Store parsed records; the name of an unnamed run is equal for copies of a file."""
    origin = Origin(
        source=source,
        run=given.run or f"run_{digest_of(to_bytes([asdict(record) for record in records]))[:12]}",
        measured_at=utc_text(parse_moment(given.measured_at)),
        is_dated=given.measured_at is not None,
        owner=caller.owner,
    )
    stored: list[Measured] = []
    by_environment: dict[Environment, list[ProbeRecord]] = {}
    for record in records:
        if record.environment is not None:
            by_environment.setdefault(record.environment, []).append(record)
    with answering(), writing(engine) as connection:
        for environment, own in by_environment.items():
            slug = gpu_of_device(environment.device, environment.memory_bytes or None, catalogue)
            gpu = None if slug is None else calibrated_gpu(slug, catalogue)
            of_gpu = origin if gpu is None else replace(origin, gpu=slug, calibration=calibration_id(gpu))
            stored += measurements_in(connection, own, of_gpu, predictor(gpu), gpu)
        log_change_in(connection, f"measurements?run={origin.run}")
    return ImportedMeasurements(
        run=origin.run,
        measurements=len(stored),
        quarantined=sum(row.quarantined_at is not None for row in stored),
        ids=tuple(row.id for row in stored),
    )


def predictor(gpu: Gpu | None) -> Callable[[Observed], float | None]:
    """Function that predicts measurements of a device."""

    def predict(observed: Observed) -> float | None:
        if gpu is not None:
            return predicted_value(observed, gpu)
        is_processor = observed.environment.kind == "cpu"
        return predicted_value(observed, processor_of(observed.environment)) if is_processor else None

    return predict


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    meaning: str
    read: Callable[[str, MeasurementImportQuery], tuple[ProbeRecord, ...]]


def _snapshot(text: str, beside: MeasurementImportQuery) -> tuple[ProbeRecord, ...]:
    if beside.device is None:
        message = "a memory snapshot does not name the device that it was taken on"
        fix = "name it as device, e.g. NVIDIA H100 80GB HBM3"
        raise Refused(Problem(field="device", code="required", message=message, fix=fix))
    return tool_files.read_memory_snapshot(text, beside.device, beside.memory_bytes or 0.0)


FORMATS: Mapping[str, Format] = {
    "nccl-tests": Format(
        meaning="output of all_reduce_perf or another program of nccl-tests or rccl-tests, header included",
        read=lambda text, beside: tool_files.read_nccl_tests(text, beside.operation),
    ),
    "gemm-csv": Format(
        meaning=f"CSV with a matrix product a line; columns: {', '.join(tool_files.COLUMNS)}",
        read=lambda text, _: tool_files.read_gemm_table(text),
    ),
    "memory-snapshot": Format(meaning="torch.cuda.memory._snapshot() as JSON; its pickle is refused", read=_snapshot),
}


def import_measurements(
    engine: Engine, catalogue: Catalogue, caller: Caller, name: str, content: bytes, given: Mapping[str, Any]
) -> ImportedMeasurements:
    """Store the measurements of another tool's file."""
    if name not in FORMATS:
        raise NotFound(f"no such format of measurements; the formats are {', '.join(FORMATS)}")
    file_format, beside = FORMATS[name], read_spec(MeasurementImportQuery, checked_texts(given), "")
    records = file_format.read(text_of(content), beside)
    return _stored(engine, catalogue, caller, records, beside, beside.source or name)


def text_of(content: bytes) -> str:
    tool_files.refuse_pickle(content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        message = "the file is not text in UTF-8"
        raise Refused(Problem(field="", code="not_text", message=message, fix="send what the tool printed, as UTF-8"))
    return text


RECORDS = "records"
"""Format of workers and of POST /v1/measurements."""

NUMBERS = ("memory_bytes",)
"""Facts beside a file that are numbers."""


def import_file(
    engine: Engine, catalogue: Catalogue, kind: str, content: bytes, name: str, given: Sequence[str]
) -> ImportedMeasurements:
    tool_files.refuse_pickle(content, name)
    beside = dict(map(_pair, given))
    if kind == RECORDS:
        return import_records(engine, catalogue, UNRESTRICTED, {**_object(content), **beside})
    if kind not in FORMATS:
        formats = ", ".join((*FORMATS, RECORDS))
        message = "there is no such format of measurements"
        raise Refused(Problem(field="format", code="not_a_choice", message=message, fix=f"use one of {formats}"))
    return import_measurements(engine, catalogue, UNRESTRICTED, kind, content, beside)


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        message = "a fact beside a file is not written as name=value"
        raise Refused(Problem(field="tell", code="no_pair", message=message, fix="write e.g. device=NAME"))
    return name, read_value(name, "number", value, ".") if name in NUMBERS else value


def _object(content: bytes) -> dict[str, Any]:
    """Parse records: a body of POST /v1/measurements, or a single record."""
    try:
        document = from_json(text_of(content))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        message = "the file is not a JSON object, as a worker writes it"
        raise Refused(Problem(field="", code="not_json", message=message, fix="give a worker's record.json"))
    return {"records": [document]} if "probe" in document else document
