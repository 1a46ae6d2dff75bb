"""/v1/measurements: measurements of launch checks and imports, beside their predictions."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import add_list, json_answer
from service.api.catalogues import Database, database_of, view_of
from service.api.computing.write_queue import queued
from service.api.errors import WrongParameter
from service.api.openapi import CSV_BODY, JSON_BODY, TEXT_BODY
from service.api.queries import one_of, takes_only
from service.api.requests import JsonObject, refuse_media_type
from service.errors import Refused
from service.features.measurements import lists
from service.features.measurements.file_formats import Beside, import_measurements
from service.features.measurements.importing import import_records
from service.features.measurements.lists import quarantine, release
from service.features.measurements.openapi import (
    file_operation,
    import_operation,
    measurement_operation,
    quarantine_operation,
    release_operation,
)
from service.tabular.contract import ListTypes
from service.validation.flat_values import read_value
from service.validation.specs import field_names

router = APIRouter(tags=["measurements"])

NONE_OTHER = [takes_only()]
BESIDE = field_names(Beside)
NUMBERS = ("memory_bytes",)
"""Numeric parameters."""
FILES = (TEXT_BODY, CSV_BODY, JSON_BODY, "application/octet-stream")
"""Media types of files; the path names the tool."""

MEASUREMENTS = ListTypes(
    singular="Measurement", row_meaning="One of the measurements", columns=lists.COLUMNS, sort=lists.NEWEST_FIRST
)
add_list(
    router,
    "measurements",
    MEASUREMENTS,
    "What was measured, the newest first",
    lambda request: lists.listed_measurements(database_of(request), caller_of(request)),
    endings=("csv", "xlsx", "parquet"),
)


async def _content_of(request: Request) -> bytes:
    refuse_media_type(request, FILES)
    return await request.body()


Content = Annotated[bytes, Depends(_content_of)]
"""Unparsed file of a request."""


@router.post(
    "/v1/measurements",
    operation_id="importMeasurements",
    summary="Records of probes that ran anywhere",
    dependencies=NONE_OTHER,
    openapi_extra=import_operation(),
)
@queued
def import_all(request: Request, database: Database, body: JsonObject) -> Response:
    """Store them with current predictions."""
    return json_answer(import_records(database, view_of(request), caller_of(request), body))


@router.post(
    "/v1/measurements/imports/{format}",
    operation_id="importMeasurementFile",
    summary="Measurements of another tool",
    dependencies=[takes_only(*BESIDE)],
    openapi_extra=file_operation(),
)
@queued
def import_file(request: Request, database: Database, format: str, content: Content) -> Response:
    """Store the measurements of a file; facts that it lacks are in the query."""
    catalogue, caller = view_of(request), caller_of(request)
    return json_answer(import_measurements(database, catalogue, caller, format, content, _beside(request)))


def _beside(request: Request) -> dict[str, Any]:
    """Facts in the query."""
    given = {name: text for name in BESIDE if (text := one_of(request, name)) is not None}
    try:
        numbers = {name: read_value(name, "number", given[name], ".") for name in NUMBERS if name in given}
    except Refused as refused:
        raise WrongParameter(*refused.problems) from None
    return {**given, **numbers}


@router.get(
    "/v1/measurements/{measurement_id}",
    operation_id="getMeasurement",
    summary="One measurement",
    dependencies=NONE_OTHER,
    openapi_extra=measurement_operation(),
)
def read(database: Database, caller: CallerDep, measurement_id: str) -> Response:
    """Return it with its shape and its environment as objects."""
    return json_answer(lists.measurement_record(lists.find_measurement(database, caller, measurement_id)))


@router.post(
    "/v1/measurements/quarantine",
    operation_id="quarantineMeasurements",
    summary="Have nothing fitted on measurements",
    dependencies=NONE_OTHER,
    openapi_extra=quarantine_operation(),
)
@queued
def take_out(request: Request, body: JsonObject) -> Response:
    """Quarantine them; existing calibrations do not change, so fit again."""
    return json_answer(quarantine(database_of(request), caller_of(request), body))


@router.post(
    "/v1/measurements/release",
    operation_id="releaseMeasurements",
    summary="Let measurements count again",
    dependencies=NONE_OTHER,
    openapi_extra=release_operation(),
)
@queued
def take_back(request: Request, body: JsonObject) -> Response:
    """Release them for the next fit."""
    return json_answer(release(database_of(request), caller_of(request), body))
