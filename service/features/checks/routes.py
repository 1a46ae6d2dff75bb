"""POST /v1/check: one verdict and one line for a scheduler, in the time of one estimate."""

from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.checks import Check
from service.api.access.authorization import AccessDenied, caller_of
from service.api.answers import json_answer
from service.api.compute import compute
from service.api.openapi import examples
from service.api.requests import CatalogueDep, RawJsonBody, StrictRoute, answer, is_long_launcher_text, read_in_process
from service.catalogue import Catalogue
from service.errors import Refused
from service.features.checks.check import (
    Evaluator,
    check,
    check_until,
    check_with_questions,
    quick_check,
    without_alternatives,
)
from service.features.checks.schemas import CheckRequest
from service.features.estimates.examples import EXAMPLES
from service.validation.json_text import parse_object

GRACE_SECONDS = 1.0
"""Time beyond its deadline after which a process that tries alternatives is ended. Source: a choice; one alternative
takes at most some 0.2 s, and a new process loads the catalogue first."""

router = APIRouter(tags=["checks"], route_class=StrictRoute)

LIMITED = {
    "summary": "The same with a deadline and a budget",
    "value": {**EXAMPLES["one-node"]["value"], "limits": {"days": 2_000, "cost_usd": 2e6}},
}

LAUNCHED = {
    "summary": "The arguments of Megatron-LM, and GPUs that are free",
    "value": {
        "launch": {
            "format": "megatron-lm",
            "content": "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention "
            "--num-query-groups 8 --ffn-hidden-size 14336 --vocab-size 128256 --swiglu --normalization RMSNorm "
            "--disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights --bf16 "
            "--seq-length 8192 --micro-batch-size 1 --global-batch-size 128 --train-iters 10000 "
            "--tensor-model-parallel-size 1 --attention-backend flash --use-distributed-optimizer",
        },
        "cluster": {"gpu": "a100-sxm4-40gb", "gpus": 8},
        "free_pool": [{"gpu": "h100-sxm5-80gb", "gpus": 32}],
        "deadline_seconds": 1,
    },
}

CHECKS: dict[str, Any] = {**EXAMPLES, "limits": LIMITED, "launch": LAUNCHED}
"""Request bodies that POST /v1/check answers."""


@router.post(
    "/v1/check",
    operation_id="createCheck",
    summary="May this job start?",
    response_model=answer(Check),
    openapi_extra=examples(CHECKS),
)
async def create_check(request: Request, body: RawJsonBody[CheckRequest], catalogue: CatalogueDep) -> Response:
    """Check a job; one that does not fit is answered with deny and the reason."""
    if is_long_launcher_text(body):
        found = await evaluated(request, check, body, catalogue)
    else:
        found = await _checked(request, parse_object(body), catalogue)
    request.app.state.metrics.verdicts.labels(found.verdict).inc()
    return json_answer(found)


async def evaluated(request: Request, evaluate: Evaluator, content: bytes, catalogue: Catalogue) -> Any:
    """Evaluate the job of a body, in another process where it takes long to parse, and store its questions."""
    if is_long_launcher_text(content):
        found, questions = await read_in_process(request, check_with_questions, evaluate, content, catalogue)
    else:
        found, questions = check_with_questions(evaluate, content, catalogue)
    request.app.state.checked_questions.keep_all(questions, caller_of(request).owner)
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
        return without_alternatives(quick)
    return found
