"""/v1/calibrations: fits of constants to measurements, their errors, and which of them is in effect for a GPU."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import add_list, json_answer
from service.api.caching import idempotent
from service.api.compute import compute, on_compute_threads, queued
from service.api.compute_process import Large
from service.api.inputs import Database, catalogue_of, database_of, view_of
from service.api.openapi import examples, located
from service.api.requests import JsonBody, OptionalJsonBody, StrictRoute, answer
from service.features.calibrations import calibrations
from service.features.calibrations.fitting import fit_calibration, read_fit_data
from service.features.calibrations.schemas import CalibrationRequest, PromotionRequest
from service.store import measurements
from service.store.measurements import Calibration
from service.tabular.lists import ListTypes
from service.validation.reading import read_spec

router = APIRouter(tags=["calibrations"], route_class=StrictRoute)

ONE = "/v1/calibrations/{calibration_id}"
EXAMPLE_ID = "cal_5d3f0c6a1b2e4f708192a3b4c5d6e7f8"
CalibrationId = Annotated[str, Path(description="Id of the calibration.", examples=[EXAMPLE_ID])]

CALIBRATIONS = ListTypes(
    singular="Calibration",
    row_meaning="One of the calibrations",
    columns=calibrations.COLUMNS,
    sort=calibrations.NEWEST_FIRST,
)
add_list(
    router,
    "calibrations",
    CALIBRATIONS,
    "What was fitted on measurements, the newest first",
    lambda request: calibrations.listed_calibrations(database_of(request), caller_of(request)),
)

CALIBRATION = CALIBRATIONS.detail("Calibration", "A calibration of one device.", calibrations.CalibrationDetail)


async def _fit(request: Request, database: Database, body: JsonBody[CalibrationRequest]) -> Calibration:
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
    summary="Fit the constants of a device on measurements of it",
    response_model=answer(CALIBRATION),
    response_description="The calibration, a draft.",
    responses=located(201),
    openapi_extra=examples("createCalibration"),
)
@queued
@idempotent
def create_calibration(
    request: Request, database: Database, body: JsonBody[CalibrationRequest], fitted: Fitted
) -> Response:
    """Constants of one device, fitted on measurements of it that are not in quarantine.

    Errors are those of predictions by constants that never saw the run, or where there is one run, the shape;
    beside them those of before.
    """
    found = measurements.create_calibration(database, fitted)
    location = {"Location": f"{calibrations.PATH}/{found.id}"}
    return json_answer(calibrations.calibration_record(found), 201, location)


@router.get(ONE, summary="One calibration", response_model=answer(CALIBRATION), response_description="The calibration.")
def get_calibration(database: Database, caller: CallerDep, calibration_id: CalibrationId) -> Response:
    """Its errors by probe, its constants, and what it was fitted on."""
    return json_answer(calibrations.calibration_record(calibrations.find_calibration(database, caller, calibration_id)))


@router.get(
    f"{ONE}/drift",
    summary="Whether a calibration still holds",
    response_model=answer(calibrations.CalibrationDrift),
    response_description="Whether it still holds.",
)
def get_calibration_drift(request: Request, database: Database, calibration_id: CalibrationId) -> Response:
    """Its predictions beside what was measured of its device since it was fitted."""
    return json_answer(calibrations.drift_of(database, view_of(request), caller_of(request), calibration_id))


@router.post(
    f"{ONE}/promote",
    summary="Let a calibration hold for its GPU",
    description="From then on its owner's answers about its GPU rest on it and name it; with scope everyone, which "
    "only an admin may give, every caller's do. Refused unless predictions of what it never saw are nearer than "
    "before, probe by probe and in the mean, and near enough by themselves.",
    response_model=answer(CALIBRATION),
    response_description="The calibration.",
    openapi_extra=examples("promoteCalibration", required=False),
)
@queued
def promote_calibration(
    request: Request, database: Database, calibration_id: CalibrationId, body: OptionalJsonBody[PromotionRequest]
) -> Response:
    """Promote it; `rev` reads the catalogue before."""
    history, caller, scope = request.app.state.history, caller_of(request), read_spec(PromotionRequest, body, "").scope
    return json_answer(
        calibrations.calibration_record(calibrations.promote(database, history, caller, calibration_id, scope))
    )


@router.post(
    f"{ONE}/rollback",
    summary="Let what held before a calibration hold again",
    response_model=answer(CALIBRATION),
    response_description="The calibration.",
)
@queued
def roll_back_calibration(request: Request, database: Database, calibration_id: CalibrationId) -> Response:
    """Another calibration, or published rates: answers are those of before again."""
    history, caller = request.app.state.history, caller_of(request)
    return json_answer(
        calibrations.calibration_record(calibrations.roll_back(database, history, caller, calibration_id))
    )


@router.post(
    f"{ONE}/retire",
    summary="Give a calibration up",
    response_model=answer(CALIBRATION),
    response_description="The calibration.",
)
@queued
def retire_calibration(request: Request, database: Database, calibration_id: CalibrationId) -> Response:
    """A draft, or the one that holds: published rates come in its place."""
    history, caller = request.app.state.history, caller_of(request)
    return json_answer(calibrations.calibration_record(calibrations.retire(database, history, caller, calibration_id)))
