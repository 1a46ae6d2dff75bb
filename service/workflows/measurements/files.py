"""How do measurements come in from a file that somebody names on the command line?"""

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from service.calibration.imports.memory_snapshot import refuse_pickle
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.store import Engine
from service.workflows.callers import ANYBODY
from service.workflows.flat_values import read_value
from service.workflows.measurements.formats import FORMATS, import_measurements, text_of
from service.workflows.measurements.importing import KeptMeasurements, import_records

RECORDS = "records"
"""Format of what a worker writes itself, and POST /v1/measurements takes."""

NUMBERS = ("memory_bytes",)
"""What is told beside a file as a number."""


def import_file(
    engine: Engine, catalogue: Catalogue, kind: str, content: bytes, name: str, told: Sequence[str]
) -> KeptMeasurements:
    """Keep the measurements of a file.

    Args:
        engine: the database
        catalogue: the facts that predict
        kind: its format
        content: the file
        name: its name, by which a pickle is refused before it is read
        told: what the file does not tell, each as name=value

    Returns:
        what came in

    Raises:
        Refused: there is no such format, or the file is not of it
        Unreachable: the database does not answer
    """
    refuse_pickle(content, name)
    beside = dict(map(_pair, told))
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
        message = "what is told beside a file is no name=value"
        raise Refused(Problem(field="tell", code="no_pair", message=message, fix="write e.g. device=NAME"))
    return name, read_value(name, "number", value, ".") if name in NUMBERS else value


def _object(content: bytes) -> dict[str, Any]:
    """The records of a file: a body of POST /v1/measurements, or one record alone."""
    try:
        found = from_json(text_of(content))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        message = "the file is no JSON object, as the records of a worker are"
        raise Refused(Problem(field="", code="not_json", message=message, fix="give a worker's record.json"))
    return {"records": [found]} if "probe" in found else found
