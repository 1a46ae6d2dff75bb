"""/v1/worker and GET /v1/workers: how workers get jobs, keep them, and hand in what they found."""

import re

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.answers.workers import ClaimedJob, HeartbeatAnswer, JobClaim, WorkerList, device_for
from service.api.answers import json_answer
from service.api.body import JsonObject, LongObject, read_body
from service.api.database import Database, database_of
from service.api.json_schema import json_response, ref
from service.api.openings import Openings
from service.api.problems import ApiError, WrongParameter
from service.api.queries import one_of, takes_only
from service.api.turns import in_turn
from service.api.worker_schemas import CLAIM, FILE_NAME, FINISH, HEARTBEAT, KEEP_FILE, LEASE_LOST
from service.errors import Problem
from service.store import Held, JobFile, Seeker, finish_job, heartbeat_job, keep_file, read_workers, see_worker
from service.workflows.devices import named_in
from service.workflows.finished_jobs import on_end
from service.workflows.worker_bodies import (
    MOST_WAIT_SECONDS,
    ClaimRequest,
    FinishRequest,
    HeartbeatRequest,
    read_whole,
)

router = APIRouter(tags=["workers"])

MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")
LONGEST_ATTEMPT = 9
"""Digits of the number of an attempt."""


@router.post(
    "/v1/worker/claim",
    operation_id="claimJob",
    summary="A job for a worker",
    dependencies=[takes_only()],
    openapi_extra=CLAIM,
)
async def claim(request: Request) -> Response:
    """A worker waits in the event loop; each look at the database has a thread for as long as it takes."""
    wanted = read_whole(ClaimRequest, await read_body(request))
    engine, state = database_of(request), request.app.state
    capabilities = named_in(state.catalogue, wanted.capabilities)
    await run_in_threadpool(see_worker, engine, wanted.worker, capabilities)
    seeker = Seeker(worker=wanted.worker, capabilities=capabilities, kinds=wanted.kinds)
    openings: Openings = state.openings
    job = await openings.claim(request, seeker, wanted.wait_seconds)
    if job is None:
        return Response(status_code=204)
    given = ClaimedJob(
        id=job.id,
        kind=job.kind,
        attempt=job.attempt,
        payload=job.payload,
        timeout_seconds=job.timeout_seconds,
        lease_seconds=state.settings.lease_seconds,
        device=device_for(job.requires, capabilities),
    )
    return json_answer(JobClaim(job=given))


@router.post(
    "/v1/worker/jobs/{job_id}/heartbeat",
    operation_id="keepJob",
    summary="A worker is still at its job",
    dependencies=[takes_only()],
    openapi_extra=HEARTBEAT,
)
@in_turn
def heartbeat(request: Request, database: Database, job_id: str, body: JsonObject) -> Response:
    """The lease begins anew; progress that differs from the last is an event of the job."""
    told = read_whole(HeartbeatRequest, body)
    held = Held(job_id, told.worker, told.attempt)
    state = heartbeat_job(database, held, request.app.state.settings.lease_seconds, told.progress)
    if state == "lost":
        raise ApiError("lease_lost", LEASE_LOST)
    return json_answer(HeartbeatAnswer(state=state))


@router.put(
    "/v1/worker/jobs/{job_id}/files/{file_name}",
    status_code=204,
    operation_id="keepJobFile",
    summary="A file that a job left",
    dependencies=[takes_only("worker", "attempt")],
    openapi_extra=KEEP_FILE,
)
async def keep_job_file(request: Request, job_id: str, file_name: str) -> Response:
    """The bytes are kept as they come."""
    held = _held_in_query(request, job_id)
    if not FILE_NAME.fullmatch(file_name):
        raise WrongParameter(_wrong("file_name", "is no name of letters, digits, dots, - and _"))
    said = request.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if not MEDIA_TYPE.fullmatch(said):
        raise ApiError("unsupported_media_type", "send the file's own media type as content-type")
    file = JobFile(name=file_name, media_type=said, content=await request.body())
    return await _keep(request=request, held=held, file=file)


@in_turn
def _keep(request: Request, held: Held, file: JobFile) -> Response:
    if not keep_file(database_of(request), held, file):
        raise ApiError("lease_lost", LEASE_LOST)
    return Response(status_code=204)


@router.post(
    "/v1/worker/jobs/{job_id}/finish",
    status_code=204,
    operation_id="finishJob",
    summary="A worker's attempt at a job ended",
    dependencies=[takes_only()],
    openapi_extra=FINISH,
)
@in_turn
def finish(request: Request, job_id: str, body: LongObject) -> Response:
    """The job's state and what it found are written in one transaction; sent twice, it is taken once."""
    told = read_whole(FinishRequest, body)
    if not finish_job(database_of(request), told.held(job_id), told.ended(), on_end):
        raise ApiError("lease_lost", LEASE_LOST)
    return Response(status_code=204)


@router.get(
    "/v1/workers",
    operation_id="listWorkers",
    summary="Workers that were heard of in the last week",
    dependencies=[takes_only()],
    openapi_extra={"responses": json_response(ref("WorkerList"))},
)
def workers(request: Request, database: Database) -> Response:
    """One that waits for a job is heard of at each of its requests, one that has a job at each of its heartbeats."""
    alive_seconds = MOST_WAIT_SECONDS + request.app.state.settings.lease_seconds
    return json_answer(WorkerList(items=tuple(read_workers(database, alive_seconds))))


def _held_in_query(request: Request, job_id: str) -> Held:
    """The claim that a worker speaks of whose body is a file."""
    worker, attempt = (one_of(request, name) for name in ("worker", "attempt"))
    if worker is None:
        raise WrongParameter(_wrong("worker", "is missing"))
    if attempt is None or not attempt.isdecimal() or len(attempt) > LONGEST_ATTEMPT:
        raise WrongParameter(_wrong("attempt", "is no number of an attempt"))
    return Held(job_id, worker, int(attempt))


def _wrong(name: str, what: str) -> Problem:
    return Problem(field=name, code="wrong_claim", message=f"{name} {what}", fix="send what the claim was answered")
