"""Which measurements does a request bring? The records of probes, as a worker writes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from annotated_types import Len

from service.calibration.records import ProbeRecord
from service.calibration.shapes import fault_of
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.noun import STRICT
from service.workflows.findings import not_an_object
from service.workflows.nouns import field_names, read_noun

MOST_RECORDS = 64
"""Records of one request. Source: a choice; a launch check has eight."""

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
    """The records that a request body brings.

    Args:
        body: the JSON object of the request

    Returns:
        the records

    Raises:
        Refused: an unknown field, a wrong value, or a measurement that nobody can read
    """
    if not isinstance(body, Mapping):
        raise Refused(not_an_object("", field_names(RecordsBody)))
    read = read_noun(RecordsBody, body, "")
    problems = [
        Problem(field=f"records.{place}.{name}", code=code, message=message, fix=fix)
        for place, record in enumerate(read.records)
        for name, code, message, fix in _faults(record)
    ]
    if problems:
        raise Refused(*problems[:MOST_PROBLEMS])
    return read


def moment_of(text: str | None) -> datetime:
    """When something was measured.

    Args:
        text: RFC 3339; None for this moment

    Returns:
        the moment

    Raises:
        Refused: the text is no moment
    """
    if text is None:
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        message = "measured_at is no moment with a time zone"
        fix = "write it as 2026-11-23T08:00:00Z, or leave it out"
        raise Refused(Problem(field="measured_at", code="not_a_moment", message=message, fix=fix))
    return found


def _faults(record: ProbeRecord) -> list[tuple[str, str, str, str]]:
    """What of a record nobody can read: field, code, message, fix."""
    if record.measurements and record.environment is None:
        message = "the record does not say what was measured on, so it could be compared with nothing"
        return [("environment", "required", message, "give the environment that the worker wrote")]
    found = []
    for place, measurement in enumerate(record.measurements):
        fault = fault_of(record.probe, measurement)
        if fault is not None:
            name, message = fault
            fix = f"see what the probe {record.probe} writes, or leave this measurement out"
            found.append((f"measurements.{place}.{name}", "unreadable", message, fix))
    return found
