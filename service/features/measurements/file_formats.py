"""File formats of other tools for measurements, each with the facts that its files lack."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge, Lt
from pydantic_core import from_json

from service.calibration.gemm_table import COLUMNS, read_gemm_table
from service.calibration.memory_snapshot import read_memory_snapshot, refuse_pickle
from service.calibration.nccl_tests import read_nccl_tests
from service.calibration.records import ProbeRecord
from service.catalogue import Catalogue
from service.errors import NotFound, Problem, Refused
from service.estimator.degrees import CollectiveName
from service.estimator.question import STRICT
from service.features.measurements.importing import (
    ImportedMeasurements,
    Words,
    import_all,
    import_records,
    parse_moment,
    run_of,
)
from service.features.measurements.measurements import Origin
from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import ANYBODY, Caller
from service.validation.flat_values import read_value
from service.validation.specs import read_spec
from service.validation.text import checked_texts

MeasurementFormat = Literal["nccl-tests", "gemm-csv", "memory-snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a file does not tell itself."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    operation: CollectiveName | None = None
    """Collective that nccl-tests measured, where its output does not say so (nccl-tests)."""
    device: Words | None = None
    """Name of the device, as its driver tells it (memory-snapshot)."""
    memory_bytes: Annotated[float, Ge(1e6), Lt(1e16)] | None = None
    """Memory of the device, where several devices share a name."""
    source: Words | None = None
    """Who measured, in words; the format where absent."""
    run: Words | None = None
    """What was measured together; this file alone where absent."""
    measured_at: Words | None = None
    """When, RFC 3339; now where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One file format."""

    meaning: str
    """Description."""
    read: Callable[[str, Beside], tuple[ProbeRecord, ...]]
    """Parser of a file."""


def _snapshot(text: str, beside: Beside) -> tuple[ProbeRecord, ...]:
    if beside.device is None:
        message = "a memory snapshot does not tell on which device it was taken"
        fix = "name it as device, e.g. NVIDIA H100 80GB HBM3"
        raise Refused(Problem(field="device", code="required", message=message, fix=fix))
    return read_memory_snapshot(text, beside.device, beside.memory_bytes or 0.0)


FORMATS: Mapping[MeasurementFormat, Format] = {
    "nccl-tests": Format(
        meaning="what all_reduce_perf and its like of nccl-tests or rccl-tests print, head included",
        read=lambda text, beside: read_nccl_tests(text, beside.operation),
    ),
    "gemm-csv": Format(
        meaning=f"CSV with a matrix product a line; columns: {', '.join(COLUMNS)}",
        read=lambda text, _: read_gemm_table(text),
    ),
    "memory-snapshot": Format(meaning="torch.cuda.memory._snapshot() as JSON; its pickle is refused", read=_snapshot),
}


def import_measurements(
    engine: Engine, catalogue: Catalogue, caller: Caller, name: str, content: bytes, given: Mapping[str, Any]
) -> ImportedMeasurements:
    """Store the measurements of another tool's file."""
    file_format, beside = format_named(name), read_spec(Beside, checked_texts(given), "")
    records = file_format.read(text_of(content), beside)
    origin = Origin(
        source=beside.source or name,
        run=beside.run or run_of(records),
        measured_at=utc_text(parse_moment(beside.measured_at)),
        is_dated=beside.measured_at is not None,
        owner=caller.owner,
    )
    return import_all(engine, catalogue, records, origin)


def format_named(name: str) -> Format:
    """Find a format by name."""
    known = next((one for one in get_args(MeasurementFormat) if one == name), None)
    if known is None:
        raise NotFound(f"no such format of measurements; the formats are {', '.join(FORMATS)}")
    return FORMATS[known]


def text_of(content: bytes) -> str:
    """Decode a file."""
    refuse_pickle(content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        message = "the file is no text in UTF-8"
        raise Refused(Problem(field="", code="not_text", message=message, fix="send what the tool printed, as UTF-8"))
    return text


RECORDS = "records"
"""Format of workers and of POST /v1/measurements."""

NUMBERS = ("memory_bytes",)
"""Numeric facts beside a file."""


def import_file(
    engine: Engine, catalogue: Catalogue, kind: str, content: bytes, name: str, given: Sequence[str]
) -> ImportedMeasurements:
    """Store the measurements of a file."""
    refuse_pickle(content, name)
    beside = dict(map(_pair, given))
    if kind == RECORDS:
        return import_records(engine, catalogue, ANYBODY, {**_object(content), **beside})
    if kind not in FORMATS:
        formats = ", ".join((*FORMATS, RECORDS))
        message = "there is no such format of measurements"
        raise Refused(Problem(field="format", code="not_a_choice", message=message, fix=f"use one of {formats}"))
    return import_measurements(engine, catalogue, ANYBODY, kind, content, beside)


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        message = "a value given beside a file is no name=value"
        raise Refused(Problem(field="tell", code="no_pair", message=message, fix="write e.g. device=NAME"))
    return name, read_value(name, "number", value, ".") if name in NUMBERS else value


def _object(content: bytes) -> dict[str, Any]:
    """Parse records: a body of POST /v1/measurements, or a single record."""
    try:
        document = from_json(text_of(content))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        message = "the file is no JSON object, as the records of a worker are"
        raise Refused(Problem(field="", code="not_json", message=message, fix="give a worker's record.json"))
    return {"records": [document]} if "probe" in document else document
