"""/v1/sweeps: a table of many questions, computed by workers shard by shard."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse

from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import JSON, add_list, json_answer
from service.api.caching import idempotent, is_head, matches_etag
from service.api.catalogues import Database, catalogue_of, database_of
from service.api.computing.compute import compute
from service.api.computing.write_queue import queued
from service.api.credential_ends import while_authorized
from service.api.limits.rate_limits import question_counter
from service.api.openapi import CSV_BODY, EVENTS
from service.api.queries import takes_only
from service.api.requests import JsonObject
from service.errors import LeaseLost
from service.features.sweeps import sweeps, tables
from service.features.sweeps.axes import Sweep
from service.features.sweeps.events import events_of
from service.features.sweeps.openapi import (
    PARQUET,
    content_operation,
    create_operation,
    events_operation,
    one_operation,
    table_operation,
)
from service.features.sweeps.schemas import read_sweep
from service.features.workers.leases import NOT_HELD, token_in_header
from service.jobs.leases import holds_part
from service.tabular.contract import ListTypes
from service.validation.serialization import to_bytes

router = APIRouter(tags=["sweeps"])

ONE = "/v1/sweeps/{sweep_id}"
NONE_OTHER = [takes_only()]


SWEEPS = ListTypes(singular="Sweep", row_meaning="One of the sweeps", columns=sweeps.COLUMNS)
add_list(
    router,
    "sweeps",
    SWEEPS,
    "The sweeps",
    lambda request: sweeps.listed_sweeps(database_of(request), caller_of(request)),
)


async def _sweep(request: Request, body: JsonObject) -> Sweep:
    """Parse a sweep before it enters the write queue: some ten thousand items take a second."""
    found: Sweep = await compute(request, read_sweep, body, await catalogue_of(request))
    return found


ReadSweep = Annotated[Sweep, Depends(_sweep)]
"""Argument of a route: the sweep that the body describes."""


@router.post(
    "/v1/sweeps",
    status_code=202,
    operation_id="createSweep",
    summary="Answer many questions",
    dependencies=NONE_OTHER,
    openapi_extra=create_operation(),
)
@queued
@idempotent
def create(request: Request, database: Database, body: JsonObject, read: ReadSweep) -> Response:  # noqa: ARG001 - part of the idempotency key
    """Store a sweep and queue its shards."""
    sweep = sweeps.create_sweep(database, caller_of(request), read, question_counter(request))
    headers = {"Location": sweep.links["self"]}
    return Response(to_bytes(sweep), status_code=202, headers=headers, media_type=JSON)


@router.get(
    ONE,
    operation_id="getSweep",
    summary="How far a sweep is",
    dependencies=NONE_OTHER,
    openapi_extra=one_operation("Rows and pieces so far, and how long the rest takes."),
)
def read(database: Database, caller: CallerDep, sweep_id: str) -> Response:
    """Return its current state."""
    return json_answer(sweeps.find_sweep(database, caller, sweep_id))


@router.get(
    f"{ONE}/events",
    operation_id="getSweepEvents",
    summary="How far a sweep is, as it changes",
    dependencies=NONE_OTHER,
    openapi_extra=events_operation(),
)
def events(request: Request, database: Database, caller: CallerDep, sweep_id: str) -> Response:
    """Stream its states until it ends, the client hangs up or the service stops."""
    sweeps.require_visible(database, caller, sweep_id)
    state_events = while_authorized(request, events_of(request, sweep_id))
    return StreamingResponse(state_events, media_type=EVENTS, headers={"Cache-Control": "no-store"})


@router.post(
    f"{ONE}/cancel",
    operation_id="cancelSweep",
    summary="Stop a sweep",
    dependencies=NONE_OTHER,
    openapi_extra=one_operation("What is done stays; workers stop within a heartbeat."),
)
@queued
def cancel(request: Request, sweep_id: str) -> Response:
    """Cancel queued shards at once and running ones soon."""
    return json_answer(sweeps.cancel_sweep(database_of(request), caller_of(request), sweep_id))


@router.post(
    f"{ONE}/resume",
    operation_id="resumeSweep",
    summary="Go on with a sweep",
    dependencies=NONE_OTHER,
    openapi_extra=one_operation("Pieces that were cancelled or failed are worked out; those that are done are not."),
)
@queued
def resume(request: Request, sweep_id: str) -> Response:
    """Resume a sweep; one that has succeeded stays unchanged."""
    return json_answer(sweeps.resume_sweep(database_of(request), caller_of(request), sweep_id))


@router.get(
    f"{ONE}/rows.parquet",
    operation_id="getSweepAsParquet",
    summary="The table of a sweep as Parquet",
    dependencies=NONE_OTHER,
    openapi_extra=table_operation(PARQUET),
)
def parquet(request: Request, database: Database, sweep_id: str) -> Response:
    """Stream the table by shard."""
    return _table(request, tables.parquet_of(database, caller_of(request), sweep_id), f"{sweep_id}.parquet", PARQUET)


@router.get(
    f"{ONE}/rows.csv",
    operation_id="getSweepAsCsv",
    summary="The table of a sweep as CSV",
    dependencies=NONE_OTHER,
    openapi_extra=table_operation(CSV_BODY),
)
def csv(request: Request, database: Database, sweep_id: str) -> Response:
    """Stream the table by shard."""
    media_type = f"{CSV_BODY}; charset=utf-8; header=present"
    return _table(request, tables.csv_of(database, caller_of(request), sweep_id), f"{sweep_id}.csv", media_type)


@router.get(
    "/v1/worker/sweeps/{sweep_id}",
    operation_id="getSweepContent",
    summary="What the rows of a sweep are made of",
    dependencies=NONE_OTHER,
    openapi_extra=content_operation(),
)
def content(request: Request, database: Database, sweep_id: str) -> Response:
    """Return its stored bytes to a worker with one of its shards."""
    if not holds_part(database, sweep_id, token_in_header(request), caller_of(request).id):
        raise LeaseLost(NOT_HELD)
    return Response(sweeps.content_of(database, sweep_id), media_type="application/octet-stream")


def _table(request: Request, table: tables.Table, name: str, media_type: str) -> Response:
    headers = {"ETag": f'"{table.digest}"', "Content-Disposition": f'attachment; filename="{name}"'}
    is_unread = is_head(request) or matches_etag(request, headers["ETag"])
    chunks: Iterator[bytes] = iter(()) if is_unread else table.chunks
    return StreamingResponse(chunks, media_type=media_type, headers=headers)
