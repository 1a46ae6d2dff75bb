"""GET /v1/adapters/...: files that a scheduler's operator copies, and the requests that those files send.

A file is served with the address at which it was fetched, so that nothing in it has to be edited.
"""

from collections.abc import Callable, Mapping
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.access.authorization import caller_of
from service.api.answers import json_answer
from service.api.catalogues import catalogue_of
from service.api.openapi import JSON_BODY, Schema, json_response, path_parameter, ref, request_body
from service.api.queries import takes_only, with_address
from service.api.requests import is_long_launcher_text, read_in_process, refuse_media_type
from service.catalogue import Catalogue
from service.errors import NotFound
from service.features.checks.bodies import manifest_check_of, review_of, slurm_check_of
from service.features.checks.check import StoreQuestion
from service.features.checks.schedulers import (
    KIND,
    VERSION,
    JobCheck,
    answer_review,
    as_lines,
    check_manifest,
    check_slurm_job,
)
from service.formats.launchers.kubernetes import ANNOTATION
from service.validation.flat import body_of_flat
from service.validation.json_text import parse_object
from service.validation.serialization import to_bytes

WEB = Path(__file__).parents[2] / "web" / "adapters"

FILES = {
    "slurm/job_submit.lua": ("slurm/ask.lua", "slurm/job_submit.lua"),
    "slurm/cli_filter.lua": ("slurm/ask.lua", "slurm/cli_filter.lua"),
    **{
        name: (name,)
        for name in (
            "kubernetes/webhook.yaml",
            "kueue/controller.py",
            "kueue/manifests.yaml",
            "ray/checked_submit.py",
            "skypilot/checked_launch.py",
        )
    },
}
"""Served files with their parts."""

TEXT: Schema = {"text/plain": {"schema": {"type": "string"}}}

SCRIPT = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--ffn-hidden-size 11008 --vocab-size 32000 --swiglu --bf16 --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 64 --train-iters 1000 --tensor-model-parallel-size 8"
)

SLURM_JOB = {"script": SCRIPT, "nodes": 1, "tres_per_node": "gres/gpu:h100:8", "time_limit_minutes": 600}

_CONTAINER = {
    "name": "pytorch",
    "command": ["bash", "-c", SCRIPT],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "annotations": {ANNOTATION: '{"cluster": {"gpu": "h100"}}'}},
    "spec": {"template": {"spec": {"containers": [_CONTAINER]}}},
}
REVIEW = {
    "apiVersion": VERSION,
    "kind": KIND,
    "request": {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "object": JOB},
}

TOKEN = path_parameter("token", "The secret of the webhook.", "a-secret-of-16-letters")

router = APIRouter(tags=["adapters"])


def _names_of(*schedulers: str) -> list[str]:
    return [file for scheduler, _, file in (name.partition("/") for name in FILES) if scheduler in schedulers]


SCHEDULERS = ("kubernetes", "kueue", "ray", "skypilot")


@router.get(
    "/v1/adapters/slurm/{name}",
    operation_id="getSlurmHook",
    summary="A Lua hook for Slurm, to be put beside slurm.conf",
    openapi_extra={
        "description": "Query parameters are parts of the question in flat form that hold for every job of the site, "
        "such as gpu=h100&usd_per_gpu_hour=2.5.",
        "parameters": [path_parameter("name", "The file.", "job_submit.lua", _names_of("slurm"))],
        "responses": {"200": {"description": "The hook.", "content": TEXT}},
    },
)
async def slurm_hook(request: Request, name: str) -> Response:
    """Return the hook, with the address of this service and the settings of the query."""
    text = _file(request, f"slurm/{name}")
    site_fields = body_of_flat(request.query_params.multi_items())
    if "gpu" in (cluster := site_fields.get("cluster", {})):
        (await catalogue_of(request)).find_gpu(str(cluster["gpu"]))  # refused here, not by each job
    site = to_bytes({part: value for part, value in site_fields.items() if value}).decode()
    level = "=" * (site.count("=") + 1)
    return Response(text.replace('SITE = "{}"', f"SITE = [{level}[{site}]{level}]"), media_type="text/plain")


@router.get(
    "/v1/adapters/{scheduler}/{name}",
    operation_id="getAdapter",
    summary="A file for a scheduler's operator",
    dependencies=[takes_only()],
    openapi_extra={
        "description": "A webhook's configuration, Kueue's controller and manifests, checked launches with Ray and "
        "SkyPilot.",
        "parameters": [
            path_parameter("scheduler", "Whose.", "kubernetes", SCHEDULERS),
            path_parameter("name", "The file.", "webhook.yaml", _names_of(*SCHEDULERS)),
        ],
        "responses": {"200": {"description": "The file.", "content": TEXT}},
    },
)
async def adapter(request: Request, scheduler: str, name: str) -> Response:
    """Return the file, with the address of this service."""
    return Response(_file(request, f"{scheduler}/{name}"), media_type="text/plain")


@router.post(
    "/v1/adapters/slurm/check",
    operation_id="createSlurmCheck",
    summary="May this job of Slurm start? Four lines",
    dependencies=[takes_only()],
    openapi_extra={
        "description": "Verdict (ok, warn, deny, or unknown for what is no known training), reason, id of the "
        "estimate, minutes of wall time to ask for. The last two may be empty.",
        "requestBody": request_body(
            ref("SlurmCheckRequest"), {"job": {"summary": "A job on one node", "value": SLURM_JOB}}
        ),
        "responses": {"200": {"description": "Four lines.", "content": TEXT}},
    },
)
async def slurm_check(request: Request) -> Response:
    """Check a job for a Slurm hook."""
    job_check = await _check_job(request, check_slurm_job, slurm_check_of)
    return Response(as_lines(job_check), media_type="text/plain")


@router.post(
    "/v1/adapters/kubernetes/check",
    operation_id="createKubernetesCheck",
    summary="May this object of Kubernetes start?",
    dependencies=[takes_only()],
    openapi_extra={
        "description": "A Job, JobSet, PyTorchJob, TrainJob, or a Workload of Kueue; anything else is unknown.",
        "requestBody": request_body(ref("KubernetesObject"), {"job": {"summary": "A Job", "value": JOB}}),
        "responses": json_response(ref("JudgedJob")),
    },
)
async def kubernetes_check(request: Request) -> Response:
    """Check an object for a Kubernetes controller."""
    return json_answer(await _check_job(request, check_manifest, manifest_check_of))


@router.post(
    "/v1/adapters/kubernetes/admission/{token}",
    operation_id="createAdmissionReview",
    summary="A validating webhook of Kubernetes",
    dependencies=[takes_only()],
    openapi_extra={
        "description": "AdmissionReview of admission.k8s.io/v1, in and out. The token is the setting "
        "TRAINCOST_ADMISSION_TOKEN; a webhook's address can carry no other secret.",
        "parameters": [TOKEN],
        "requestBody": request_body(
            ref("AdmissionReview"), {"review": {"summary": "A Job is created", "value": REVIEW}}
        ),
        "responses": json_response(ref("AdmissionAnswer"), "The same review with its response."),
    },
)
async def kubernetes_admission(request: Request, token: str) -> Response:
    """Deny objects that run out of memory; warn their creator of others."""
    admission_token = request.app.state.settings.admission_token
    if admission_token is None or not compare_digest(admission_token.encode(), token.encode()):
        raise NotFound("there is no webhook at this address; TRAINCOST_ADMISSION_TOKEN says at which")
    content, catalogue = await _content_of(request), await catalogue_of(request)
    if not is_long_launcher_text(content):
        count = partial(_count, request)
        return json_answer(answer_review(parse_object(content), catalogue, _keep(request), count))
    answer, questions, verdicts = await read_in_process(request, review_of, content, catalogue)
    request.app.state.checked_questions.keep_all(questions, caller_of(request).owner)
    for verdict in verdicts:
        _count(request, verdict)
    return Response(answer, media_type=JSON_BODY)


async def _check_job(
    request: Request,
    evaluate: Callable[[Mapping[str, Any], Catalogue, StoreQuestion], JobCheck],
    apart: Callable[..., Any],
) -> JobCheck:
    """Check a scheduler's job; a body that takes long to parse goes to another process."""
    content, catalogue = await _content_of(request), await catalogue_of(request)
    if is_long_launcher_text(content):
        job_check, questions = await read_in_process(request, apart, content, catalogue)
        request.app.state.checked_questions.keep_all(questions, caller_of(request).owner)
    else:
        job_check = evaluate(parse_object(content), catalogue, _keep(request))
    _count(request, job_check.verdict)
    found: JobCheck = job_check
    return found


async def _content_of(request: Request) -> bytes:
    refuse_media_type(request, (JSON_BODY,))
    return await request.body()


def _count(request: Request, verdict: str) -> None:
    request.app.state.metrics.verdicts.labels(verdict).inc()


def _keep(request: Request) -> StoreQuestion:
    return partial(request.app.state.checked_questions.keep, owner=caller_of(request).owner)


def _file(request: Request, name: str) -> str:
    if name not in FILES:
        raise NotFound(f"no file of that name is served; {', '.join(FILES)} are")
    return with_address("".join((WEB / part).read_text(encoding="utf-8") for part in FILES[name]), request)
