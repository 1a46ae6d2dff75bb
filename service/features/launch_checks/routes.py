"""/v1/launch-checks: a worker measures the kernels of a job before it starts; events are numbered like its job's."""

import re
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from service.answers.launch_checks import LaunchCheck
from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import add_list, json_answer
from service.api.caching import idempotent
from service.api.compute import queued
from service.api.errors import WrongParameter
from service.api.inputs import Database, catalogue_at, database_of, view_of
from service.api.openapi import BINARY, EVENTS, content, examples, located
from service.api.requests import JsonBody, StrictRoute, answer, header
from service.api.streams import AGAIN, ChangeFeed, event_bytes, event_stream, problem_event
from service.errors import NotFound, Problem
from service.features.launch_checks import launch_checks
from service.features.launch_checks.finished_jobs import on_end
from service.features.launch_checks.launch_checks import UNKNOWN_CHECK, find_launch_check
from service.features.launch_checks.schemas import LaunchCheckRequest
from service.jobs.jobs import read_later_events
from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import UNRESTRICTED
from service.store.tables import ENDED
from service.tabular.lists import ListTypes
from service.validation.reading import to_bytes

POLL_SECONDS = 0.3
"""Time between two reads of new events. Source: a choice; often enough for a bar that moves."""

ANSWER_EVENT = "launch_check"
"""Name of the last event, which holds the whole answer."""

LAST_EVENT_ID = "Last-Event-ID"
EVENT_NUMBER = "[0-9]{1,9}"
"""Pattern of event numbers: every match fits a database integer, and no job has more events."""


@dataclass(frozen=True, slots=True)
class EventHistory:
    """Events of a launch check up to now."""

    numbers: tuple[int, ...] = ()
    events: tuple[bytes, ...] = ()
    """The same events as server-sent bytes."""
    whole: bytes | None = None
    """The whole answer, once it has ended."""

    @property
    def is_over(self) -> bool:
        """Whether no event can follow."""
        return self.whole is not None


def launch_check_feed(engine: Engine, longest: float, leaving: Event) -> ChangeFeed[EventHistory]:
    """Feed of launch check events, shared by all streams."""
    return ChangeFeed(partial(_read_events, engine), POLL_SECONDS, longest, leaving)


LastEventHeader = Annotated[
    Any,
    *header(
        LAST_EVENT_ID,
        {"type": "string", "pattern": f"^{EVENT_NUMBER}$"},
        "Id of the last event that you received; absent, the stream begins with the first event.",
    ),
]


async def last_event_of(request: Request, sent: LastEventHeader = None) -> int:
    """Last-Event-ID of a request; 0 without it."""
    last = request.headers.get(LAST_EVENT_ID, "")
    if last and re.fullmatch(EVENT_NUMBER, last) is None:
        message = "the id is not that of an event of this stream, whose ids are whole numbers"
        fix = "send the id of the last event that you received, or leave it out"
        raise WrongParameter(Problem(field=LAST_EVENT_ID, code="not_an_event", message=message, fix=fix))
    return int(last or 0)


LastEvent = Annotated[int, Depends(last_event_of)]


async def _events(request: Request, check_id: str, after: int) -> AsyncGenerator[bytes, None]:
    feed: ChangeFeed[EventHistory] = request.app.state.launch_check_feed
    yield b"retry: 2000\n\n"
    try:
        async with aclosing(feed.states(check_id)) as states:
            async for history in states:
                if history is None:
                    yield b": still here\n\n"
                    continue
                later = history.events[bisect_right(history.numbers, after) :]
                after = max(after, *history.numbers[-1:])
                last = () if history.whole is None else (event_bytes(ANSWER_EVENT, history.whole, after),)
                yield b"".join((*later, *last))
                if history.is_over:
                    return
        yield AGAIN
    except Exception as error:
        yield problem_event(request, error, after)


def _read_events(engine: Engine, known: Mapping[str, EventHistory | None]) -> dict[str, EventHistory | Exception]:
    """Read new events of launch checks; an error of one check ends only its own streams."""
    before = {check_id: history or EventHistory() for check_id, history in known.items()}
    later = read_later_events(
        engine, {check_id: max(history.numbers, default=0) for check_id, history in before.items()}
    )
    result: dict[str, EventHistory | Exception] = {}
    for check_id, history in before.items():
        status, events = later.get(check_id, ("", []))
        try:
            whole = to_bytes(find_launch_check(engine, UNRESTRICTED, check_id)) if status in ENDED else None
        except Exception as error:  # goes to the streams of this check
            result[check_id] = error
            continue
        numbers = (*history.numbers, *(one.number for one in events))
        sent = (
            *history.events,
            *(
                event_bytes(one.name, to_bytes({"at": one.at and utc_text(one.at), "data": one.data}), one.number)
                for one in events
            ),
        )
        is_same = history is known[check_id] and not events and whole is None
        result[check_id] = (
            (history if is_same else EventHistory(numbers, sent, whole)) if status else NotFound(UNKNOWN_CHECK)
        )
    return result


router = APIRouter(tags=["launch-checks"], route_class=StrictRoute)

ONE = "/v1/launch-checks/{check_id}"
CheckId = Annotated[str, Path(description="Id of the launch check.", examples=["lch_1f7c0a5e4b6d49d2a8e3c5b7d9f01234"])]
GZIP = "application/gzip"

EVENTS_TEXT = (
    "Events: queued, running, progress with what each probe reported, and one of succeeded, failed and cancelled, "
    "numbered by their ids; then launch_check, with the whole answer, and the stream ends. A stream may end early with "
    "the event again, or the connection may break: reconnect with the id of the last event to get the later ones."
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
    summary="Measure a job before it starts",
    response_model=answer(LaunchCheck),
    response_description="The launch check, queued.",
    responses=located(202, "Where the launch check is read."),
    openapi_extra=examples("createLaunchCheck"),
)
@queued
@idempotent
def create_launch_check(request: Request, database: Database, body: JsonBody[LaunchCheckRequest]) -> Response:
    """Have a worker measure the kernels of this model under this recipe and layout."""
    state = request.app.state
    state.checked_questions.write()  # it may name a check that was answered a moment ago
    created = launch_checks.create_launch_check(
        database,
        view_of(request),
        catalogue_at(request),
        body,
        caller_of(request),
        state.checked_questions.retry_for_replicas(),
    )
    return json_answer(created, 202, {"Location": f"{launch_checks.PATH}/{created['id']}"})


@router.get(
    ONE, summary="One launch check", response_model=answer(LaunchCheck), response_description="The launch check."
)
def get_launch_check(database: Database, caller: CallerDep, check_id: CheckId) -> Response:
    """Its progress; once it has ended, its findings, which are computed once."""
    return json_answer(launch_checks.find_launch_check(database, caller, check_id))


@router.get(
    f"{ONE}/events",
    summary="Events of a launch check, as they happen",
    description=EVENTS_TEXT,
    response_class=Response,
    response_description="The events, as they happen.",
    responses=content(EVENTS, {"description": EVENTS_TEXT}, EVENTS_EXAMPLE),
)
def get_launch_check_events(request: Request, database: Database, check_id: CheckId, after: LastEvent) -> Response:
    """Stream events until the launch check ends."""
    launch_checks.find_launch_check(database, caller_of(request), check_id)  # 404 before the stream starts
    return event_stream(request, _events(request, check_id, after))


@router.post(
    f"{ONE}/cancel",
    summary="Stop a launch check",
    response_model=answer(LaunchCheck),
    response_description="The launch check.",
)
@queued
def cancel_launch_check(request: Request, check_id: CheckId) -> Response:
    """Stop it when its worker reports next; a launch check that has ended stays as it is."""
    return json_answer(launch_checks.cancel_launch_check(database_of(request), caller_of(request), check_id, on_end))


@router.get(
    f"{ONE}/trace",
    summary="The trace of a launch check's profile",
    response_class=Response,
    response_description="A Chrome trace, compressed.",
    responses=content(GZIP, BINARY),
)
def get_launch_check_trace(database: Database, caller: CallerDep, check_id: CheckId) -> Response:
    """Open it in chrome://tracing, Perfetto or TensorBoard's profiler, which needs the file name of the download."""
    saved_as = {"Content-Disposition": f'attachment; filename="{check_id}.pt.trace.json.gz"'}
    return Response(launch_checks.launch_check_trace(database, caller, check_id), media_type=GZIP, headers=saved_as)
