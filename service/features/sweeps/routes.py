"""/v1/sweeps: a table of many questions, computed by workers shard by shard, and the events of its state."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from threading import Event
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response, StreamingResponse

from service.answers.sweeps import SweepAnswer
from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import add_list, json_answer
from service.api.caching import idempotent, is_head, matches_etag
from service.api.compute import compute, queued
from service.api.inputs import Database, catalogue_of, database_of
from service.api.limits.rate_limits import question_counter
from service.api.openapi import BINARY, CSV_BODY, EVENTS, PARQUET, content, examples, located, requires
from service.api.requests import JsonBody, StrictRoute, answer
from service.api.streams import AGAIN, ChangeFeed, event_bytes, event_stream, problem_event
from service.errors import LeaseLost
from service.features.sweeps import shards, sweeps
from service.features.sweeps.rows import Sweep
from service.features.sweeps.schemas import SweepRequest, read_sweep
from service.features.sweeps.sweeps import current_sweeps, unknown_sweep
from service.features.workers.leases import NOT_HELD, LeaseToken
from service.jobs.leases import holds_part
from service.store import Engine
from service.tabular.lists import ListTypes
from service.validation.reading import to_bytes

POLL_SECONDS = 0.5
"""Interval between reads of the state. Source: a choice; short enough for a progress bar."""

UNFINISHED = ("queued", "running")


class SweepState(NamedTuple):
    """Current state of a sweep."""

    event: bytes
    is_over: bool


def sweep_feed(engine: Engine, longest: float, leaving: Event) -> ChangeFeed[SweepState]:
    """Feed of sweep states, shared by all streams."""
    return ChangeFeed(partial(_read_states, engine), POLL_SECONDS, longest, leaving)


async def events_of(request: Request, sweep_id: str) -> AsyncGenerator[bytes, None]:
    """Events of a sweep, one for each change of its state."""
    feed: ChangeFeed[SweepState] = request.app.state.sweep_feed
    try:
        async with aclosing(feed.states(sweep_id)) as states:
            async for state in states:
                event, is_over = state or (b": still there\n\n", False)
                yield event
                if is_over:
                    return
        yield AGAIN
    except Exception as error:
        yield problem_event(request, error)


def _read_states(engine: Engine, known: Mapping[str, SweepState | None]) -> dict[str, SweepState | Exception]:
    states: dict[str, SweepState | Exception] = {sweep_id: unknown_sweep() for sweep_id in known}
    for sweep in current_sweeps(engine, list(known)):
        is_over = sweep.status not in UNFINISHED
        event = event_bytes("ended" if is_over else "progress", to_bytes(sweep), sweep.rows.done)
        states[sweep.id] = SweepState(event, is_over)
    return states


router = APIRouter(tags=["sweeps"], route_class=StrictRoute)

ONE = "/v1/sweeps/{sweep_id}"
SWEEP_ID = "swp_5d2c1a7e9b3f40688e0d6a4c2b1f7e9a"
SweepId = Annotated[str, Path(description="Id of the sweep.", examples=[SWEEP_ID])]

PROGRESS = 'id: 20000\nevent: progress\ndata: {"status":"running","rows":{"total":1000000,"done":20000}}\n\n'
CSV_EXAMPLE = "row,model,gpu,gpus,status,verdict,days\n0,llama-3.1-8b,h100-sxm5-80gb,64,200,fits,5.4\n"

SWEEPS = ListTypes(singular="Sweep", row_meaning="One of the sweeps", columns=sweeps.COLUMNS)
add_list(
    router,
    "sweeps",
    SWEEPS,
    "The sweeps",
    lambda request: sweeps.listed_sweeps(database_of(request), caller_of(request)),
)


async def _sweep(request: Request, body: JsonBody[SweepRequest]) -> Sweep:
    """Parse a sweep before it enters the write queue: some ten thousand items take a second."""
    found: Sweep = await compute(request, read_sweep, body, await catalogue_of(request))
    return found


ReadSweep = Annotated[Sweep, Depends(_sweep)]


@router.post(
    "/v1/sweeps",
    status_code=202,
    summary="Answer many questions",
    description="What is wrong with an item is refused as a whole; a combination that cannot be answered is a "
    "row with status 422 and its reason. Rows go through the lists in the order models, clusters, layouts, "
    "recipes, prices, the last one fastest; workers answer them under the versions of the moment of asking.",
    response_model=answer(SweepAnswer),
    response_description="It waits for workers.",
    responses=located(202),
    openapi_extra=examples("createSweep"),
)
@queued
@idempotent
def create_sweep(request: Request, database: Database, body: JsonBody[SweepRequest], read: ReadSweep) -> Response:
    """Store a sweep and queue its shards."""
    sweep = sweeps.create_sweep(database, caller_of(request), read, question_counter(request))
    return json_answer(sweep, 202, {"Location": sweep.links["self"]})


@router.get(ONE, summary="How far a sweep is", response_model=answer(SweepAnswer))
def get_sweep(database: Database, caller: CallerDep, sweep_id: SweepId) -> Response:
    """Rows and pieces so far, and how long the rest takes."""
    return json_answer(sweeps.find_sweep(database, caller, sweep_id))


@router.get(
    f"{ONE}/events",
    summary="How far a sweep is, as it changes",
    response_class=StreamingResponse,
    response_description="How far it is, as it changes.",
    responses=content(
        EVENTS,
        {
            "description": "Events: progress, each with the whole state of the sweep, then ended with the last one, or "
            "problem. A stream may end before that, with the event again: ask anew."
        },
        PROGRESS,
    ),
)
def get_sweep_events(request: Request, database: Database, caller: CallerDep, sweep_id: SweepId) -> Response:
    """A client that reconnects gets the current state first, so nothing is missed."""
    sweeps.visible_sweep(database, caller, sweep_id)
    return event_stream(request, events_of(request, sweep_id))


@router.post(f"{ONE}/cancel", summary="Stop a sweep", response_model=answer(SweepAnswer))
@queued
def cancel_sweep(request: Request, sweep_id: SweepId) -> Response:
    """What is done stays; workers stop within a heartbeat."""
    return json_answer(sweeps.cancel_sweep(database_of(request), caller_of(request), sweep_id))


@router.post(f"{ONE}/resume", summary="Go on with a sweep", response_model=answer(SweepAnswer))
@queued
def resume_sweep(request: Request, sweep_id: SweepId) -> Response:
    """Pieces that were cancelled or failed are worked out; those that are done are not."""
    return json_answer(sweeps.resume_sweep(database_of(request), caller_of(request), sweep_id))


TABLE = (
    "The rows of all pieces that are done, in the order of their numbers; all rows once the sweep has succeeded. An "
    "interval is three columns."
)


@router.get(
    f"{ONE}/rows.parquet",
    summary="The table of a sweep as Parquet",
    description=TABLE,
    response_class=Response,
    response_description="The table.",
    responses=content(PARQUET, BINARY),
)
def get_sweep_as_parquet(request: Request, database: Database, sweep_id: SweepId) -> Response:
    """Stream the table by shard."""
    return _table(request, database, sweep_id, "parquet")


@router.get(
    f"{ONE}/rows.csv",
    summary="The table of a sweep as CSV",
    description=TABLE,
    response_class=Response,
    response_description="The table.",
    responses=content(CSV_BODY, {"type": "string", "description": "A header, then a line a row."}, CSV_EXAMPLE),
)
def get_sweep_as_csv(request: Request, database: Database, sweep_id: SweepId) -> Response:
    """Stream the table by shard."""
    return _table(request, database, sweep_id, "csv")


@router.get(
    "/v1/worker/sweeps/{sweep_id}",
    summary="What the rows of a sweep are made of",
    description="Pieces of a sweep name it and their rows; what the rows are made of is read once, by a worker "
    "that holds one of them.",
    response_class=Response,
    response_description="The sweep.",
    responses=content(
        "application/octet-stream",
        BINARY | {"description": "Every part of the sweep, names looked up: all that its rows depend on."},
    ),
    openapi_extra=requires("worker"),
)
def get_sweep_content(request: Request, database: Database, sweep_id: SweepId, token: LeaseToken) -> Response:
    """Return its stored bytes to a worker with one of its shards."""
    if not holds_part(database, sweep_id, token, caller_of(request).id):
        raise LeaseLost(NOT_HELD)
    return Response(sweeps.content_of(database, sweep_id), media_type="application/octet-stream")


HEADED_CSV = f"{CSV_BODY}; charset=utf-8; header=present"


def _table(request: Request, database: Engine, sweep_id: str, ending: str) -> Response:
    write, media_type = (shards.as_csv, HEADED_CSV) if ending == "csv" else (shards.as_parquet, PARQUET)
    digest, chunks = shards.table_of(database, caller_of(request), sweep_id, write)
    headers = {"ETag": f'"{digest}"', "Content-Disposition": f'attachment; filename="{sweep_id}.{ending}"'}
    is_unread = is_head(request) or matches_etag(request, headers["ETag"])
    return StreamingResponse(iter(()) if is_unread else chunks, media_type=media_type, headers=headers)
