"""/v1/worker and GET /v1/workers: claim jobs, renew leases, upload files and finish."""

import re
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.answers.workers import ClaimedJob, HeartbeatAnswer, JobClaim, WorkerList, device_for
from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import json_answer
from service.api.compute import queued
from service.api.errors import ApiError, WrongParameter
from service.api.inputs import Database, database_of, view_of
from service.api.openapi import BINARY, examples, requires
from service.api.requests import JsonBody, StrictRoute, answer
from service.errors import LeaseLost, Problem
from service.features.launch_checks.finished_jobs import on_end
from service.features.workers import schemas
from service.features.workers.leases import NOT_HELD, JobId, JobNotifications, LeaseToken, lease_of
from service.jobs import leases
from service.jobs.leases import JobFile, Lease, heartbeat_job, holds_job, store_file
from service.store.workers import JobRequest, WorkerBounds, read_workers, record_worker
from service.validation.devices import with_catalogue_names
from service.validation.reading import read_spec

router = APIRouter(tags=["workers"], route_class=StrictRoute)

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")

FileName = Annotated[str, Path(description="What it is called.", examples=["trace.json.gz"])]
WRONG_NAME = Problem(
    field="file_name",
    code="wrong_name",
    message="file_name is no name of letters, digits, dots, - and _",
    fix="begin with a letter or a digit, and take at most 100 characters",
)
WRITTEN = "It is written."


@router.post(
    "/v1/worker/claim",
    summary="A job for a worker",
    response_model=answer(JobClaim),
    response_description="A job, under a lease.",
    responses={204: {"description": "There is none for this worker; it may ask again at once."}},
    openapi_extra=requires("worker") | examples("claimJob"),
)
async def claim_job(request: Request, body: JsonBody[schemas.ClaimRequest]) -> Response:
    """Waits for a job that the worker can do, for wait_seconds at most."""
    claim_request = read_spec(schemas.ClaimRequest, body, "")  # waits on the event loop; only queries take a thread
    engine, state = database_of(request), request.app.state
    capabilities = with_catalogue_names(view_of(request), claim_request.capabilities)
    caller, bounds = caller_of(request), WorkerBounds(state.settings.workers_per_key, _alive_seconds(request))
    claimant = JobRequest(
        worker=claim_request.worker,
        capabilities=capabilities,
        kinds=claim_request.kinds,
        key=caller.id,
        owner=caller.works_for,
    )
    await run_in_threadpool(record_worker, engine, claimant, bounds)
    notifications: JobNotifications = state.job_notifications
    claimed = await notifications.claim(request, claimant, claim_request.wait_seconds)
    if claimed is None:
        return Response(status_code=204)
    job = claimed.job
    given = ClaimedJob(
        id=job.id,
        kind=job.kind,
        attempt=job.attempt,
        lease=claimed.lease.token,
        payload=job.payload,
        timeout_seconds=job.timeout_seconds,
        lease_seconds=state.settings.lease_seconds,
        device=device_for(job.requires, capabilities),
    )
    return json_answer(JobClaim(job=given))


@router.post(
    "/v1/worker/jobs/{job_id}/heartbeat",
    summary="A worker is still at its job",
    response_model=answer(HeartbeatAnswer),
    response_description="What to do.",
    openapi_extra=requires("worker") | examples("keepJob"),
)
@queued
def keep_job(request: Request, database: Database, job_id: JobId, body: JsonBody[schemas.HeartbeatRequest]) -> Response:
    """Renews the lease. 409: no job is held under it, so what runs is to be stopped. At most 16 KB."""
    sent = read_spec(schemas.HeartbeatRequest, body, "")
    schemas.refuse_deep_progress(sent.progress)
    lease = lease_of(request, job_id, sent.lease)
    state = heartbeat_job(database, lease, request.app.state.settings.lease_seconds, sent.progress)
    if state == "lost":
        raise LeaseLost(NOT_HELD)
    return json_answer(HeartbeatAnswer(state=state))


@router.put(
    "/v1/worker/jobs/{job_id}/files/{file_name}",
    status_code=204,
    summary="A file that a job left",
    response_description=WRITTEN,
    openapi_extra=requires("worker")
    | {
        "requestBody": {
            "required": True,
            "description": "The file, of at most 64 MiB, under its own media type.",
            "content": {"application/octet-stream": {"schema": BINARY}},
        }
    },
)
async def keep_job_file(request: Request, job_id: JobId, file_name: FileName, token: LeaseToken) -> Response:
    """In the place of one of the same name. Files of an attempt go when another one begins."""
    lease = lease_of(request, job_id, token)
    if not FILE_NAME.fullmatch(file_name):
        raise WrongParameter(WRONG_NAME)
    media_type = request.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if not MEDIA_TYPE.fullmatch(media_type):
        raise ApiError("unsupported_media_type", "send the file's own media type as content-type")
    if not await run_in_threadpool(holds_job, database_of(request), lease):
        raise LeaseLost(NOT_HELD)
    file = JobFile(name=file_name, media_type=media_type, content=await request.body())
    return await _keep(request=request, lease=lease, file=file)


@queued
def _keep(request: Request, lease: Lease, file: JobFile) -> Response:
    if not store_file(database_of(request), lease, file, request.app.state.settings.worker_file_bytes):
        raise LeaseLost(NOT_HELD)
    return Response(status_code=204)


@router.post(
    "/v1/worker/jobs/{job_id}/finish",
    status_code=204,
    summary="A worker's attempt at a job ended",
    response_description=WRITTEN,
    openapi_extra=requires("worker") | examples("finishJob"),
)
@queued
def finish_job(request: Request, job_id: JobId, body: JsonBody[schemas.FinishRequest]) -> Response:
    """Hands in the outcome of the attempt. Sent again, it is taken once; another outcome is 409."""
    sent = read_spec(schemas.FinishRequest, body, "")
    if not leases.finish_job(database_of(request), lease_of(request, job_id, sent.lease), sent.ended(), on_end):
        raise LeaseLost(NOT_HELD)
    return Response(status_code=204)


@router.get("/v1/workers", summary="Workers that were heard of in the last week", response_model=answer(WorkerList))
def list_workers(request: Request, database: Database, caller: CallerDep) -> Response:
    """One that waits for a job is heard of at each of its requests, one that has a job at each of its heartbeats.

    Those are listed that take the caller's jobs, and of what they are at only jobs that the caller may see.
    """
    return json_answer(WorkerList(items=tuple(read_workers(database, _alive_seconds(request), caller.visible_owner))))


def _alive_seconds(request: Request) -> float:
    """Time for which a worker that is not heard of is taken to be there."""
    lease_seconds: float = request.app.state.settings.lease_seconds
    return schemas.MOST_WAIT_SECONDS + lease_seconds
