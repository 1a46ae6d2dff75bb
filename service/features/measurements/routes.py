"""/v1/measurements: measurements of launch checks and imports, beside their predictions."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Request
from fastapi.responses import Response
from pydantic import WithJsonSchema

from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import add_list, json_answer
from service.api.compute import queued
from service.api.errors import WrongParameter
from service.api.inputs import Database, database_of, single_value, view_of
from service.api.openapi import CSV_BODY, JSON_BODY, TEXT_BODY, examples
from service.api.requests import BodyForm, JsonBody, Parameters, StrictRoute, answer, whole_query
from service.errors import Refused
from service.features.measurements import importing, measurements
from service.tabular.lists import ListTypes
from service.validation.flat import read_value
from service.validation.reading import field_names

router = APIRouter(tags=["measurements"], route_class=StrictRoute)

MEASUREMENT_ID = "msr_9bec5fed2aa72e8fd124217153ba1408"
"""Id of the first measurement of the example, determined by its values."""

MEASUREMENTS = ListTypes(
    singular="Measurement",
    row_meaning="One of the measurements",
    columns=measurements.COLUMNS,
    sort=measurements.NEWEST_FIRST,
)
add_list(
    router,
    "measurements",
    MEASUREMENTS,
    "What was measured, the newest first",
    lambda request: measurements.listed_measurements(database_of(request), caller_of(request)),
    endings=("csv", "xlsx", "parquet"),
)

FileBody = Annotated[
    Any,
    WithJsonSchema({"type": "string"}),
    BodyForm((TEXT_BODY, CSV_BODY, JSON_BODY, "application/octet-stream"), parse=None),
    Body(media_type=TEXT_BODY, default_factory=bytes),
]
"""A file of any media type as it came: the path names the tool."""
FormatName = Annotated[
    str,
    Path(
        description="; ".join(f"{name}: {one.meaning}" for name, one in importing.FORMATS.items()),
        examples=["nccl-tests"],
        json_schema_extra={"enum": list(importing.FORMATS)},
    ),
]
FACTS = field_names(importing.MeasurementImportQuery)
FactsQuery = Annotated[Parameters, Depends(whole_query(importing.MeasurementImportQuery, *FACTS))]
"""Query with facts that a file lacks."""


@router.post(
    "/v1/measurements",
    summary="Records of probes that ran anywhere",
    response_model=answer(importing.ImportedMeasurements),
    response_description="What came in.",
    openapi_extra=examples("importMeasurements"),
)
@queued
def import_measurements(
    request: Request, database: Database, body: JsonBody[importing.MeasurementsRequest]
) -> Response:
    """Records of probes, as a worker's record.json holds them.

    Runs on shared, divided or throttled devices and outliers among others of their kind go into quarantine, where
    nothing is fitted on them. A stored measurement is not stored twice.
    """
    return json_answer(importing.import_records(database, view_of(request), caller_of(request), body))


@router.post(
    "/v1/measurements/imports/{format}",
    summary="Measurements of another tool",
    response_model=answer(importing.ImportedMeasurements),
    response_description="What came in.",
    openapi_extra=examples("importMeasurementFile", TEXT_BODY),
)
@queued
def import_measurement_file(
    request: Request, database: Database, format: FormatName, content: FileBody, query: FactsQuery
) -> Response:
    """A file that is not of its format is refused with the column, the unit or the line that is wrong.

    A pickle is refused before anything reads it.
    """
    given: dict[str, Any] = {name: text for name in FACTS if (text := single_value(request, name)) is not None}
    try:
        numbers = {name: read_value(name, "number", given[name], ".") for name in importing.NUMBERS if name in given}
    except Refused as refused:
        raise WrongParameter(*refused.problems) from None
    catalogue, caller = view_of(request), caller_of(request)
    return json_answer(importing.import_measurements(database, catalogue, caller, format, content, given | numbers))


@router.get(
    "/v1/measurements/{measurement_id}",
    summary="One measurement",
    response_model=answer(MEASUREMENTS.detail("MeasuredQuantity", "One measurement.", measurements.MeasurementDetail)),
    response_description="The measurement.",
)
def get_measurement(
    database: Database,
    caller: CallerDep,
    measurement_id: Annotated[str, Path(description="Id of the measurement.", examples=[MEASUREMENT_ID])],
) -> Response:
    """One measurement, with its shape and what it was measured on."""
    return json_answer(measurements.find_measurement(database, caller, measurement_id))


@router.post(
    "/v1/measurements/quarantine",
    summary="Quarantine measurements",
    response_model=answer(measurements.MeasurementItems),
    response_description="The measurements as they are then.",
    openapi_extra=examples("quarantineMeasurements"),
)
@queued
def quarantine_measurements(request: Request, body: JsonBody[measurements.QuarantineRequest]) -> Response:
    """They stay in the list, and nothing is fitted on them from then on."""
    return json_answer(measurements.quarantine(database_of(request), caller_of(request), body))


@router.post(
    "/v1/measurements/release",
    summary="Release measurements from quarantine",
    response_model=answer(measurements.MeasurementItems),
    response_description="The measurements as they are then.",
    openapi_extra=examples("releaseMeasurements"),
)
@queued
def release_measurements(request: Request, body: JsonBody[measurements.ReleaseRequest]) -> Response:
    """The reason of their quarantine was examined and does not hold. They count again in later fits."""
    return json_answer(measurements.release(database_of(request), caller_of(request), body))
