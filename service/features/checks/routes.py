"""POST /v1/check, a verdict and one line for a scheduler, and /v1/adapters, the files and requests of schedulers."""

import logging
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hmac import compare_digest
from pathlib import Path as FilePath
from time import monotonic
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import PlainTextResponse, Response

from service.answers.checks import Adapter, Adapters, Check, JobCheck
from service.api import requests
from service.api.access.authorization import AccessDenied, caller_of
from service.api.answers import json_answer
from service.api.compute import compute
from service.api.inputs import catalogue_of, with_address
from service.api.openapi import PUBLIC, examples, requires
from service.catalogue import Catalogue
from service.errors import NotFound, Refused
from service.features.checks import schemas
from service.features.checks.check import (
    LEFT_OUT,
    NO_TURN,
    Evaluator,
    check,
    check_until,
    check_with_questions,
    quick_check,
)
from service.features.checks.scheduled import (
    answer_review,
    as_lines,
    check_manifest,
    check_script,
    check_slurm_job,
)
from service.formats.launchers.manifests import KINDS
from service.validation.flat import FlatQuestion, body_of_flat
from service.validation.json_text import parse_object
from service.validation.reading import to_bytes

GRACE_SECONDS = 1.0
"""Time beyond its deadline after which a process that tries alternatives is ended. Source: a choice; one alternative
takes at most some 0.2 s, and a new process loads the catalogue first."""

log = logging.getLogger(__name__)

router = APIRouter(tags=["checks"], route_class=requests.StrictRoute)


@router.post(
    "/v1/check",
    summary="May this job start?",
    response_model=requests.answer(Check),
    openapi_extra=requires("read") | examples("createCheck"),
)
async def create_check(
    request: Request, body: requests.RawJsonBody[schemas.CheckRequest], catalogue: requests.CatalogueDep
) -> Response:
    """Check a job; one that does not fit is answered with deny and the reason."""
    if requests.is_long_launcher_text(body):
        found = await evaluated(request, check, body, catalogue)
    else:
        found = await _checked(request, parse_object(body), catalogue)
    request.app.state.metrics.verdicts.labels(found.verdict).inc()
    return json_answer(found)


async def evaluated(request: Request, evaluate: Evaluator, content: bytes, catalogue: Catalogue) -> Any:
    """Evaluate the job of a body, in another process where it takes long to parse, and store its questions."""
    if requests.is_long_launcher_text(content):
        found, questions = await requests.read_in_process(request, check_with_questions, evaluate, content, catalogue)
    else:
        found, questions = check_with_questions(evaluate, content, catalogue)
    for question in questions:
        request.app.state.checked_questions.keep(question, caller_of(request).owner)
    return found


async def _checked(request: Request, body: Mapping[str, Any], catalogue: Catalogue) -> Check:
    """Check a job; if the deadline allows, try further alternatives in another process."""
    keep = partial(request.app.state.checked_questions.keep, owner=caller_of(request).owner)
    quick, end = quick_check(body, catalogue, keep)
    if end is None:
        return quick
    left = max(0.0, end - monotonic())
    try:
        found: Check = await compute(
            request, check_until, body, catalogue, end, deadline_seconds=left + GRACE_SECONDS, queue_seconds=left
        )
    except (AccessDenied, Refused):  # no process in time, or one that was lost: the verdict stands
        return replace(quick, warnings=(*(one for one in quick.warnings if one != LEFT_OUT), NO_TURN))
    return found


WEB = FilePath(__file__).parents[2] / "web" / "adapters"

_ROWS = tomllib.loads(FilePath(__file__).with_name("adapters.toml").read_text(encoding="utf-8"))["adapter"]

FILES = {f"{row['scheduler']}/{row['name']}": tuple(row.pop("parts")) for row in _ROWS}
"""Files in `WEB` that make up each file."""

_KINDS = {"kubernetes": tuple(kind for kind in KINDS if kind != "Workload"), "kueue": ("Workload",)}

ADAPTERS = Adapters(
    items=tuple(
        Adapter(path=f"/v1/adapters/{name}", kinds=_KINDS.get(row["scheduler"], ()), **row)
        for name, row in zip(FILES, _ROWS, strict=True)
    )
)

adapter_router = APIRouter(tags=["adapters"], route_class=requests.StrictRoute)

SCHEDULERS = tuple(dict.fromkeys(one.scheduler for one in ADAPTERS.items if one.scheduler != "slurm"))


def _path(description: str, example: str, choices: Sequence[str]) -> Any:
    return Path(description=description, examples=[example], json_schema_extra={"enum": list(choices)})


def _files_of(*schedulers: str) -> list[str]:
    return [one.name for one in ADAPTERS.items if one.scheduler in schedulers]


SlurmFile = Annotated[str, _path("The file.", "job_submit.lua", _files_of("slurm"))]
Scheduler = Annotated[str, _path("Whose.", "kubernetes", SCHEDULERS)]
AdapterFile = Annotated[str, _path("The file.", "webhook.yaml", _files_of(*SCHEDULERS))]
Token = Annotated[str, Path(description="The secret of the webhook.", examples=["a-secret-of-16-letters"])]
SiteQuery = Annotated[requests.Parameters, Depends(requests.whole_query(FlatQuestion, is_described=False))]
CallerCatalogue = Annotated[Catalogue, Depends(catalogue_of)]


@adapter_router.get(
    "/v1/adapters", summary="Files for the operators of schedulers", response_model=requests.answer(Adapters)
)
async def list_adapters() -> Response:
    """List files with what they do, what they ask and what they check."""
    return json_answer(ADAPTERS)


@adapter_router.get(
    "/v1/adapters/slurm/{name}",
    summary="A Lua hook for Slurm, to be put beside slurm.conf",
    description="Query parameters are parts of the question in flat form that hold for every job of the site, such as "
    "gpu=h100&usd_per_gpu_hour=2.5.",
    response_class=PlainTextResponse,
    response_description="The hook.",
)
async def get_slurm_hook(request: Request, name: SlurmFile, site: SiteQuery, catalogue: CallerCatalogue) -> Response:
    """Return the hook, with the address of this service and the settings of the query."""
    text = _file(request, f"slurm/{name}")
    parts = body_of_flat(site)
    if "gpu" in (cluster := parts.get("cluster", {})):
        catalogue.find_gpu(str(cluster["gpu"]))  # refused here, not by each job
    settings = to_bytes({part: value for part, value in parts.items() if value}).decode()
    level = "=" * (settings.count("=") + 1)
    return PlainTextResponse(text.replace('SITE = "{}"', f"SITE = [{level}[{settings}]{level}]"))


@adapter_router.get(
    "/v1/adapters/{scheduler}/{name}",
    summary="A file for a scheduler's operator",
    response_class=PlainTextResponse,
    response_description="The file.",
)
async def get_adapter(request: Request, scheduler: Scheduler, name: AdapterFile) -> Response:
    """A webhook's configuration, Kueue's controller and manifests, checked launches with Ray and SkyPilot."""
    return PlainTextResponse(_file(request, f"{scheduler}/{name}"))


@adapter_router.post(
    "/v1/adapters/slurm/check",
    summary="May this job of Slurm start? Lines of text",
    description="Verdict (ok, warn, deny, or unknown for what cannot be judged), reason, id of the estimate, "
    "minutes of wall time to ask for, code of the reason for which it was not judged. The last three may be empty. "
    "Each further line is a warning for the user.",
    response_class=PlainTextResponse,
    response_description="Five lines, and one for each warning.",
    openapi_extra=requires("read") | examples("createSlurmCheck"),
)
async def create_slurm_check(
    request: Request, body: requests.RawJsonBody[schemas.SlurmCheckRequest], catalogue: CallerCatalogue
) -> PlainTextResponse:
    """Check a job for a Slurm hook."""
    job_check = await evaluated(request, check_slurm_job, body, catalogue)
    _report(request, job_check)
    return PlainTextResponse(as_lines(job_check))


@adapter_router.post(
    "/v1/adapters/scripts/check",
    summary="May this script start?",
    response_model=requests.answer(JobCheck),
    openapi_extra=requires("read") | examples("createScriptCheck"),
)
async def create_script_check(
    request: Request, body: requests.RawJsonBody[schemas.ScriptCheckRequest], catalogue: CallerCatalogue
) -> Response:
    """Check a shell script or a command on GPUs, as Ray, SkyPilot and other schedulers start one."""
    job_check = await evaluated(request, check_script, body, catalogue)
    _report(request, job_check)
    return json_answer(job_check)


@adapter_router.post(
    "/v1/adapters/kubernetes/check",
    summary="May this object of Kubernetes start?",
    response_model=requests.answer(JobCheck),
    openapi_extra=requires("read") | examples("createKubernetesCheck"),
)
async def create_kubernetes_check(
    request: Request, body: requests.RawJsonBody[schemas.KubernetesObject], catalogue: CallerCatalogue
) -> Response:
    """An object that GET /v1/adapters lists, or a Workload of Kueue; anything else is unknown."""
    job_check = await evaluated(request, check_manifest, body, catalogue)
    _report(request, job_check)
    return json_answer(job_check)


@adapter_router.post(
    "/v1/adapters/kubernetes/admission/{token}",
    summary="A validating webhook of Kubernetes",
    response_model=requests.answer(schemas.AdmissionAnswer),
    response_description="The same review with its response.",
    openapi_extra=PUBLIC | examples("createAdmissionReview"),
)
async def create_admission_review(
    request: Request, token: Token, body: requests.RawJsonBody[schemas.AdmissionReview], catalogue: CallerCatalogue
) -> Response:
    """AdmissionReview of admission.k8s.io/v1, in and out.

    The token is the setting TRAINCOST_ADMISSION_TOKEN; a webhook's address can carry no other secret.
    """
    admission_token = request.app.state.settings.admission_token
    if admission_token is None or not compare_digest(admission_token.encode(), token.encode()):
        raise NotFound("there is no webhook at this address; TRAINCOST_ADMISSION_TOKEN says at which")
    answered, job_check = await evaluated(request, answer_review, body, catalogue)
    if job_check is not None:
        _report(request, job_check)
    return json_answer(answered)


def _report(request: Request, job_check: JobCheck) -> None:
    """Count a verdict; where the job was not judged, count and log why."""
    metrics = request.app.state.metrics
    metrics.verdicts.labels(job_check.verdict).inc()
    if job_check.not_judged is not None:
        metrics.unjudged.labels(job_check.not_judged).inc()
        log.info("a job was not judged (%s): %s", job_check.not_judged, job_check.reason)


def _file(request: Request, name: str) -> str:
    if name not in FILES:
        raise NotFound(f"no file of that name is served; {', '.join(FILES)} are")
    return with_address("".join((WEB / part).read_text(encoding="utf-8") for part in FILES[name]), request)
