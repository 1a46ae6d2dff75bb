"""/v1/launch-checks: a worker measures the kernels of a job before it starts."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import JSON, add_list, json_answer
from service.api.caching import idempotent
from service.api.catalogues import Database, catalogue_at, database_of, view_of
from service.api.computing.write_queue import queued
from service.api.queries import takes_only
from service.api.requests import JsonObject
from service.features.launch_checks import launch_checks
from service.features.launch_checks.events import last_event_of, stream_of
from service.features.launch_checks.finished_jobs import on_end
from service.features.launch_checks.openapi import (
    GZIP,
    create_operation,
    events_operation,
    read_operation,
    trace_operation,
)
from service.tabular.contract import ListTypes
from service.validation.serialization import to_bytes

router = APIRouter(tags=["launch-checks"])

ONE = "/v1/launch-checks/{check_id}"
NONE_OTHER = [takes_only()]


LAUNCH_CHECKS = ListTypes(
    singular="LaunchCheck",
    row_meaning="One of the launch checks",
    columns=launch_checks.COLUMNS,
    sort=launch_checks.NEWEST_FIRST,
)
add_list(
    router,
    "launch-checks",
    LAUNCH_CHECKS,
    "The launch checks",
    lambda request: launch_checks.listed_launch_checks(database_of(request), caller_of(request)),
)


@router.post(
    "/v1/launch-checks",
    status_code=202,
    operation_id="createLaunchCheck",
    summary="Measure a job before it starts",
    dependencies=NONE_OTHER,
    openapi_extra=create_operation(),
)
@queued
@idempotent
def create(request: Request, database: Database, body: JsonObject) -> Response:
    """Answer and store the question, predict the measurements, and queue the job."""
    state = request.app.state
    state.checked_questions.write()  # it may name a check that was answered a moment ago
    found = launch_checks.create_launch_check(
        database, view_of(request), catalogue_at(request), body, caller_of(request), state.checked_questions.of_others()
    )
    location = {"Location": f"{launch_checks.PATH}/{found['id']}"}
    return Response(to_bytes(found), status_code=202, headers=location, media_type=JSON)


@router.get(
    ONE,
    operation_id="getLaunchCheck",
    summary="One launch check",
    dependencies=NONE_OTHER,
    openapi_extra=read_operation("How far it is, or what it found: computed once, when it ended."),
)
def read(database: Database, caller: CallerDep, check_id: str) -> Response:
    """Return its current state."""
    return json_answer(launch_checks.find_launch_check(database, caller, check_id))


@router.get(
    f"{ONE}/events",
    operation_id="getLaunchCheckEvents",
    summary="What happens to a launch check, as it happens",
    dependencies=NONE_OTHER,
    openapi_extra=events_operation(),
)
def events(request: Request, database: Database, check_id: str) -> Response:
    """Stream events until the launch check ends."""
    last_event_of(request)
    launch_checks.find_launch_check(database, caller_of(request), check_id)  # 404 before the stream starts
    return stream_of(request, check_id)


@router.post(
    f"{ONE}/cancel",
    operation_id="cancelLaunchCheck",
    summary="Stop a launch check",
    dependencies=NONE_OTHER,
    openapi_extra=read_operation("What runs is stopped at the worker's next word; one that has ended stays as it is."),
)
@queued
def cancel(request: Request, check_id: str) -> Response:
    """Cancel it; a body is ignored."""
    return json_answer(launch_checks.cancel_launch_check(database_of(request), caller_of(request), check_id, on_end))


@router.get(
    f"{ONE}/trace",
    operation_id="getLaunchCheckTrace",
    summary="The trace of a launch check's profile",
    dependencies=NONE_OTHER,
    openapi_extra=trace_operation(),
)
def trace(database: Database, caller: CallerDep, check_id: str) -> Response:
    """Return the trace as a file for trace viewers."""
    saved_as = {"Content-Disposition": f'attachment; filename="{check_id}.pt.trace.json.gz"'}
    return Response(launch_checks.launch_check_trace(database, caller, check_id), media_type=GZIP, headers=saved_as)
