"""/v1/calibrations: fits of constants to measurements, their errors, and which of them is in effect for a GPU."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import JSON, add_list, json_answer
from service.api.caching import idempotent
from service.api.catalogues import Database, catalogue_of, database_of, view_of
from service.api.computing.compute import compute
from service.api.computing.compute_process import Large
from service.api.computing.write_queue import on_compute_threads, queued
from service.api.queries import takes_only
from service.api.requests import JsonObject, OptionalObject
from service.features.calibrations import lists
from service.features.calibrations.drift import drift_of
from service.features.calibrations.fitting import fit_calibration, read_fit_data
from service.features.calibrations.promotion import promote, retire, roll_back
from service.features.calibrations.schemas import read_promotion
from service.features.measurements.openapi import (
    calibration_operation,
    drift_operation,
    fit_operation,
    promote_operation,
)
from service.store.measurements import Calibration, create_calibration
from service.tabular.contract import ListTypes
from service.validation.serialization import to_bytes

router = APIRouter(tags=["calibrations"])

ONE = "/v1/calibrations/{calibration_id}"
NONE_OTHER = [takes_only()]

CALIBRATIONS = ListTypes(
    singular="Calibration", row_meaning="One of the calibrations", columns=lists.COLUMNS, sort=lists.NEWEST_FIRST
)
add_list(
    router,
    "calibrations",
    CALIBRATIONS,
    "What was fitted on measurements, the newest first",
    lambda request: lists.listed_calibrations(database_of(request), caller_of(request)),
)


async def _fit(request: Request, database: Database, body: JsonObject) -> Calibration:
    """Fit a calibration before it enters the write queue: a thousand measurements take a second."""
    catalogue = await catalogue_of(request)
    data = await on_compute_threads(request, read_fit_data, database, catalogue, caller_of(request), body)
    fitted: Calibration = await compute(request, fit_calibration, Large(data), catalogue)
    return fitted


Fitted = Annotated[Calibration, Depends(_fit)]
"""Route argument: the calibration fitted to the selected measurements."""


@router.post(
    "/v1/calibrations",
    status_code=201,
    operation_id="createCalibration",
    summary="Fit the constants of a device on measurements of it",
    dependencies=NONE_OTHER,
    openapi_extra=fit_operation(),
)
@queued
@idempotent
def create(request: Request, database: Database, body: JsonObject, fitted: Fitted) -> Response:  # noqa: ARG001 - part of the idempotency key
    """Store a draft; it changes no answer until it is promoted."""
    found = create_calibration(database, fitted)
    location = {"Location": f"{lists.PATH}/{found.id}"}
    return Response(to_bytes(lists.calibration_record(found)), status_code=201, headers=location, media_type=JSON)


@router.get(
    ONE,
    operation_id="getCalibration",
    summary="One calibration",
    dependencies=NONE_OTHER,
    openapi_extra=calibration_operation("Its errors by probe, its constants, and what it was fitted on."),
)
def read(database: Database, caller: CallerDep, calibration_id: str) -> Response:
    """Return its current state."""
    return json_answer(lists.calibration_record(lists.find_calibration(database, caller, calibration_id)))


@router.get(
    f"{ONE}/drift",
    operation_id="getCalibrationDrift",
    summary="Whether a calibration still holds",
    dependencies=NONE_OTHER,
    openapi_extra=drift_operation(),
)
def drift(request: Request, database: Database, calibration_id: str) -> Response:
    """Compare it with newer measurements."""
    return json_answer(drift_of(database, view_of(request), caller_of(request), calibration_id))


@router.post(
    f"{ONE}/promote",
    operation_id="promoteCalibration",
    summary="Let a calibration hold for its GPU",
    dependencies=NONE_OTHER,
    openapi_extra=promote_operation(),
)
@queued
def promote_one(request: Request, database: Database, calibration_id: str, body: OptionalObject) -> Response:
    """Promote it; `rev` reads the catalogue before."""
    history, caller = request.app.state.history, caller_of(request)
    return json_answer(
        lists.calibration_record(promote(database, history, caller, calibration_id, read_promotion(body).scope))
    )


@router.post(
    f"{ONE}/rollback",
    operation_id="rollBackCalibration",
    summary="Let what held before a calibration hold again",
    dependencies=NONE_OTHER,
    openapi_extra=calibration_operation("Another calibration, or published rates: answers are those of before again."),
)
@queued
def roll_back_one(request: Request, database: Database, calibration_id: str) -> Response:
    """Roll it back, if it is in effect."""
    history, caller = request.app.state.history, caller_of(request)
    return json_answer(lists.calibration_record(roll_back(database, history, caller, calibration_id)))


@router.post(
    f"{ONE}/retire",
    operation_id="retireCalibration",
    summary="Give a calibration up",
    dependencies=NONE_OTHER,
    openapi_extra=calibration_operation("A draft, or the one that holds: published rates come in its place."),
)
@queued
def retire_one(request: Request, database: Database, calibration_id: str) -> Response:
    """Retire it; it stays readable, because answers name it."""
    history, caller = request.app.state.history, caller_of(request)
    return json_answer(lists.calibration_record(retire(database, history, caller, calibration_id)))
