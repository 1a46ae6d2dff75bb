"""GET /v1/adapters/...: files that a scheduler's operator copies, and the requests that those files send.

A file is served with the address at which it was fetched, so that nothing in it has to be edited.
"""

from collections.abc import Sequence
from hmac import compare_digest
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import PlainTextResponse, Response

from service.api.answers import json_answer
from service.api.catalogues import catalogue_of
from service.api.openapi import examples
from service.api.queries import with_address
from service.api.requests import Parameters, RawJsonBody, StrictRoute, answer, whole_query
from service.catalogue import Catalogue
from service.errors import NotFound
from service.features.checks.routes import evaluated
from service.features.checks.schedulers import JobCheck, answer_review, as_lines, check_manifest, check_slurm_job
from service.features.checks.schemas import (
    KIND,
    VERSION,
    AdmissionAnswer,
    AdmissionReview,
    KubernetesObject,
    SlurmCheckRequest,
)
from service.formats.launchers.kubernetes import ANNOTATION
from service.validation.flat import FlatQuestion, body_of_flat
from service.validation.serialization import to_bytes

WEB = FilePath(__file__).parents[2] / "web" / "adapters"

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

router = APIRouter(tags=["adapters"], route_class=StrictRoute)

SCHEDULERS = ("kubernetes", "kueue", "ray", "skypilot")


def _path(description: str, example: str, choices: Sequence[str]) -> Any:
    return Path(description=description, examples=[example], json_schema_extra={"enum": list(choices)})


def _files_of(*schedulers: str) -> list[str]:
    return [file for scheduler, _, file in (name.partition("/") for name in FILES) if scheduler in schedulers]


SlurmFile = Annotated[str, _path("The file.", "job_submit.lua", _files_of("slurm"))]
Scheduler = Annotated[str, _path("Whose.", "kubernetes", SCHEDULERS)]
AdapterFile = Annotated[str, _path("The file.", "webhook.yaml", _files_of(*SCHEDULERS))]
Token = Annotated[str, Path(description="The secret of the webhook.", examples=["a-secret-of-16-letters"])]
SiteQuery = Annotated[Parameters, Depends(whole_query(FlatQuestion, is_described=False))]
CallerCatalogue = Annotated[Catalogue, Depends(catalogue_of)]


@router.get(
    "/v1/adapters/slurm/{name}",
    operation_id="getSlurmHook",
    summary="A Lua hook for Slurm, to be put beside slurm.conf",
    description="Query parameters are parts of the question in flat form that hold for every job of the site, such as "
    "gpu=h100&usd_per_gpu_hour=2.5.",
    response_class=PlainTextResponse,
    response_description="The hook.",
)
async def slurm_hook(request: Request, name: SlurmFile, site: SiteQuery, catalogue: CallerCatalogue) -> Response:
    """Return the hook, with the address of this service and the settings of the query."""
    text = _file(request, f"slurm/{name}")
    parts = body_of_flat(site)
    if "gpu" in (cluster := parts.get("cluster", {})):
        catalogue.find_gpu(str(cluster["gpu"]))  # refused here, not by each job
    settings = to_bytes({part: value for part, value in parts.items() if value}).decode()
    level = "=" * (settings.count("=") + 1)
    return PlainTextResponse(text.replace('SITE = "{}"', f"SITE = [{level}[{settings}]{level}]"))


@router.get(
    "/v1/adapters/{scheduler}/{name}",
    operation_id="getAdapter",
    summary="A file for a scheduler's operator",
    description="A webhook's configuration, Kueue's controller and manifests, checked launches with Ray and SkyPilot.",
    response_class=PlainTextResponse,
    response_description="The file.",
)
async def adapter(request: Request, scheduler: Scheduler, name: AdapterFile) -> Response:
    """Return the file, with the address of this service."""
    return PlainTextResponse(_file(request, f"{scheduler}/{name}"))


@router.post(
    "/v1/adapters/slurm/check",
    operation_id="createSlurmCheck",
    summary="May this job of Slurm start? Four lines",
    description="Verdict (ok, warn, deny, or unknown for what is no known training), reason, id of the estimate, "
    "minutes of wall time to ask for. The last two may be empty.",
    response_class=PlainTextResponse,
    response_description="Four lines.",
    openapi_extra=examples({"job": {"summary": "A job on one node", "value": SLURM_JOB}}),
)
async def slurm_check(
    request: Request, body: RawJsonBody[SlurmCheckRequest], catalogue: CallerCatalogue
) -> PlainTextResponse:
    """Check a job for a Slurm hook."""
    job_check = await evaluated(request, check_slurm_job, body, catalogue)
    _count(request, job_check.verdict)
    return PlainTextResponse(as_lines(job_check))


@router.post(
    "/v1/adapters/kubernetes/check",
    operation_id="createKubernetesCheck",
    summary="May this object of Kubernetes start?",
    description="A Job, JobSet, PyTorchJob, TrainJob, or a Workload of Kueue; anything else is unknown.",
    response_model=answer(JobCheck),
    openapi_extra=examples({"job": {"summary": "A Job", "value": JOB}}),
)
async def kubernetes_check(
    request: Request, body: RawJsonBody[KubernetesObject], catalogue: CallerCatalogue
) -> Response:
    """Check an object for a Kubernetes controller."""
    job_check = await evaluated(request, check_manifest, body, catalogue)
    _count(request, job_check.verdict)
    return json_answer(job_check)


@router.post(
    "/v1/adapters/kubernetes/admission/{token}",
    operation_id="createAdmissionReview",
    summary="A validating webhook of Kubernetes",
    description="AdmissionReview of admission.k8s.io/v1, in and out. The token is the setting "
    "TRAINCOST_ADMISSION_TOKEN; a webhook's address can carry no other secret.",
    response_model=answer(AdmissionAnswer),
    response_description="The same review with its response.",
    openapi_extra=examples({"review": {"summary": "A Job is created", "value": REVIEW}}),
)
async def kubernetes_admission(
    request: Request, token: Token, body: RawJsonBody[AdmissionReview], catalogue: CallerCatalogue
) -> Response:
    """Deny objects that run out of memory; warn their creator of others."""
    admission_token = request.app.state.settings.admission_token
    if admission_token is None or not compare_digest(admission_token.encode(), token.encode()):
        raise NotFound("there is no webhook at this address; TRAINCOST_ADMISSION_TOKEN says at which")
    answered, verdict = await evaluated(request, answer_review, body, catalogue)
    if verdict is not None:
        _count(request, verdict)
    return json_answer(answered)


def _count(request: Request, verdict: str) -> None:
    request.app.state.metrics.verdicts.labels(verdict).inc()


def _file(request: Request, name: str) -> str:
    if name not in FILES:
        raise NotFound(f"no file of that name is served; {', '.join(FILES)} are")
    return with_address("".join((WEB / part).read_text(encoding="utf-8") for part in FILES[name]), request)
