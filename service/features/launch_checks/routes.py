"""/v1/launch-checks: a worker measures the kernels of a job before it starts."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from service.answers.launch_checks import LaunchCheck
from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import JSON, add_list, json_answer
from service.api.caching import idempotent
from service.api.catalogues import Database, catalogue_at, database_of, view_of
from service.api.compute import queued
from service.api.openapi import EVENTS, examples
from service.api.requests import JsonBody, StrictRoute, answer
from service.features.estimates.examples import EXAMPLES
from service.features.launch_checks import launch_checks
from service.features.launch_checks.events import LastEvent, stream_of
from service.features.launch_checks.finished_jobs import on_end
from service.features.launch_checks.schemas import LaunchCheckRequest
from service.tabular.contract import ListTypes
from service.validation.serialization import to_bytes

router = APIRouter(tags=["launch-checks"], route_class=StrictRoute)

ONE = "/v1/launch-checks/{check_id}"
CheckId = Annotated[str, Path(description="Id of the launch check.", examples=["lch_1f7c0a5e4b6d49d2a8e3c5b7d9f01234"])]
GZIP = "application/gzip"

LAUNCH_CHECK_BODIES: dict[str, Any] = {
    "everything": {
        "summary": "Everything that can be measured of SmolLM2 135M on what there is, in two minutes",
        "value": {
            "question": {
                "model": "smollm2-135m",
                "recipe": {"sequence_length": 2048},
                "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
            },
            "on": "any",
        },
    },
    "products": {
        "summary": "The matrix products alone, on the cluster's own GPU where a worker has it",
        "value": {"question": EXAMPLES["one-node"]["value"], "probes": ["gemm"], "time_budget_seconds": 60},
    },
}
"""Request bodies that POST /v1/launch-checks answers."""

EVENTS_TEXT = (
    "Events: queued, running, progress with what each probe reported, and one of succeeded, failed and cancelled, "
    "numbered by their ids; then launch_check, with the whole answer, and the stream ends. A stream may end early, "
    "with the event again, or be cut off: reconnect with the id of the last event to get those after it."
)

EVENTS_EXAMPLE = """id: 2
event: running
data: {"at":"2026-11-23T08:00:01Z","data":{"worker":"gpu-node-7"}}

id: 3
event: progress
data: {"at":"2026-11-23T08:00:02Z","data":{"probes":[{"probe":"gemm","status":"running","done_fraction":0.25}]}}

"""

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
    description="A worker measures the real kernels of this model under this recipe and layout.",
    response_model=answer(LaunchCheck),
    response_description="The launch check, queued.",
    responses={
        202: {"headers": {"Location": {"description": "Where the launch check is read.", "schema": {"type": "string"}}}}
    },
    openapi_extra=examples(LAUNCH_CHECK_BODIES),
)
@queued
@idempotent
def create(request: Request, database: Database, body: JsonBody[LaunchCheckRequest]) -> Response:
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
    description="How far it is, or what it found: computed once, when it ended.",
    response_model=answer(LaunchCheck),
    response_description="The launch check.",
)
def read(database: Database, caller: CallerDep, check_id: CheckId) -> Response:
    """Return its current state."""
    return json_answer(launch_checks.find_launch_check(database, caller, check_id))


@router.get(
    f"{ONE}/events",
    operation_id="getLaunchCheckEvents",
    summary="What happens to a launch check, as it happens",
    description=EVENTS_TEXT,
    response_class=Response,
    response_description="What happens, as it happens.",
    responses={200: {"content": {EVENTS: {"schema": {"description": EVENTS_TEXT}, "example": EVENTS_EXAMPLE}}}},
)
def events(request: Request, database: Database, check_id: CheckId, after: LastEvent) -> Response:
    """Stream events until the launch check ends."""
    launch_checks.find_launch_check(database, caller_of(request), check_id)  # 404 before the stream starts
    return stream_of(request, check_id, after)


@router.post(
    f"{ONE}/cancel",
    operation_id="cancelLaunchCheck",
    summary="Stop a launch check",
    description="What runs is stopped at the worker's next word; one that has ended stays as it is.",
    response_model=answer(LaunchCheck),
    response_description="The launch check.",
)
@queued
def cancel(request: Request, check_id: CheckId) -> Response:
    """Cancel it; a body is ignored."""
    return json_answer(launch_checks.cancel_launch_check(database_of(request), caller_of(request), check_id, on_end))


@router.get(
    f"{ONE}/trace",
    operation_id="getLaunchCheckTrace",
    summary="The trace of a launch check's profile",
    description="For chrome://tracing, Perfetto, and TensorBoard's profiler, which takes it under the name that it is "
    "saved as.",
    response_class=Response,
    response_description="A Chrome trace, compressed.",
    responses={200: {"content": {GZIP: {"schema": {"type": "string", "format": "binary"}}}}},
)
def trace(database: Database, caller: CallerDep, check_id: CheckId) -> Response:
    """Return the trace as a file for trace viewers."""
    saved_as = {"Content-Disposition": f'attachment; filename="{check_id}.pt.trace.json.gz"'}
    return Response(launch_checks.launch_check_trace(database, caller, check_id), media_type=GZIP, headers=saved_as)
