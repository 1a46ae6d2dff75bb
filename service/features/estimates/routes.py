"""POST and GET of /v1/estimates, /v1/memory, /v1/flops and /v1/gpu-hours: one question, answered whole or in part.

POST /v1/memory?method= answers as another tool would.

The routes are asynchronous because an answer takes a millisecond or two of pure computation. The catalogue is in
memory, and no route here waits for the database: only an earlier catalogue that was not requested lately is read from
there, on another thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, Grounds, MemoryAnswer, MethodAnswer
from service.api.access.authorization import CallerDep
from service.api.answers import JSON, json_answer
from service.api.catalogues import Database, catalogue_at, catalogue_of
from service.api.computing.compute import compute
from service.api.openapi import json_response, parameter_ref, path_parameter, ref, request_body
from service.api.queries import EXPLAIN, METHOD, REV, is_explained, method_of, takes_only
from service.api.requests import read_body
from service.estimator.choices import choices
from service.estimator.names import ToolName
from service.features.estimates.answers import answer_by, answer_explained, answer_of, timeline_json
from service.features.estimates.openapi import (
    EXAMPLES,
    choices_operation,
    flat_operation,
    memory_operation,
    question_operation,
)
from service.features.estimates.store import stored_answer
from service.validation.flat import body_of_flat
from service.validation.questions import read_question

router = APIRouter(tags=["estimates"])


@dataclass(frozen=True, slots=True)
class Part:
    """One estimating path and the part of the answer that it gives."""

    path: str
    name: str
    kind: type[Grounds]
    summary: str


PARTS = (
    Part("/v1/estimates", "Estimate", Answer, "Everything about one configuration"),
    Part("/v1/memory", "Memory", MemoryAnswer, "Does it fit? Bytes of every stage, by kind"),
    Part("/v1/flops", "Flop", FlopAnswer, "Floating-point operations, model and hardware"),
    Part("/v1/gpu-hours", "GpuHours", GpuHoursAnswer, "Seconds, GPU-hours, days, USD, kWh"),
)


async def _answered(request: Request, body: Mapping[str, Any], part: Part) -> Response:
    catalogue = await catalogue_of(request)
    if is_explained(request):  # which takes as long as ten answers
        return Response(await compute(request, answer_explained, part.kind, body, catalogue), media_type=JSON)
    return json_answer(answer_of(part.kind, body, catalogue))


async def _answered_by(method: ToolName, request: Request, body: Mapping[str, Any]) -> Response:
    catalogue = await catalogue_of(request)
    return json_answer(answer_by(method, read_question(body, catalogue), catalogue))


def _add_routes(part: Part) -> None:
    compares = part.kind is MemoryAnswer

    async def ask(request: Request) -> Response:
        method = method_of(request) if compares else None
        body = await read_body(request)
        return await (_answered(request, body, part) if method is None else _answered_by(method, request, body))

    async def ask_flat(request: Request) -> Response:
        question = [(name, text) for name, text in request.query_params.multi_items() if name not in {EXPLAIN, REV}]
        return await _answered(request, body_of_flat(question), part)

    router.add_api_route(
        part.path,
        ask,
        methods=["POST"],
        dependencies=[takes_only(EXPLAIN, REV, *((METHOD,) if compares else ()))],
        operation_id=f"create{part.name}",
        summary=part.summary,
        openapi_extra=(
            memory_operation(part.kind.__name__, MethodAnswer.__name__)
            if compares
            else question_operation(part.kind.__name__)
        ),
    )
    router.add_api_route(
        part.path,
        ask_flat,
        operation_id=f"get{part.name}",
        summary=part.summary,
        openapi_extra=flat_operation(part.kind.__name__),
    )


for _part in PARTS:
    _add_routes(_part)


stored_router = APIRouter(tags=["estimates"], dependencies=[takes_only()])

ID = path_parameter("estimate_id", "Id of the answer.", "est_bcc8e6385ed0cbc7bc9d4ef58d62404d")


@stored_router.get(
    "/v1/estimates/{estimate_id}",
    operation_id="getStoredEstimate",
    summary="An answer that was stored",
    openapi_extra={
        "description": "Of a scenario, a launch check or a check of the caller's owner; to an admin, of anyone's.",
        "parameters": [ID],
        "responses": json_response(ref("Answer")),
    },
)
def stored_estimate(request: Request, database: Database, caller: CallerDep, estimate_id: str) -> Response:
    """Asking alone stores nothing; scenarios and checks do."""
    state = request.app.state
    checked = state.checked_questions
    waiting = partial(checked.find, owner=caller.whose)
    found = stored_answer(database, caller.whose, estimate_id, catalogue_at(request), waiting, checked.of_others())
    return Response(found, media_type=JSON)


timeline_router = APIRouter(tags=["estimates"], dependencies=[takes_only(REV)])

OPERATION: dict[str, Any] = {
    "description": "The same body as /v1/memory. Points are in order; their series follow the stage's kinds.",
    "parameters": [parameter_ref(REV)],
    "requestBody": request_body(ref("QuestionRequest"), EXAMPLES),
    "responses": json_response(ref("TimelineAnswer")),
}


@timeline_router.post(
    "/v1/memory/timeline",
    operation_id="createTimeline",
    summary="Memory over a step, stage by stage",
    openapi_extra=OPERATION,
)
async def memory_over_a_step(request: Request) -> Response:
    """Live bytes by kind from the start of a step to its end, for the first step and for any later one."""
    catalogue, body = await catalogue_of(request), await read_body(request)
    return Response(await compute(request, timeline_json, body, catalogue), media_type=JSON)


choices_router = APIRouter(tags=["choices"], dependencies=[takes_only()])


@choices_router.get(
    "/v1/choices",
    operation_id="listChoices",
    summary="Every enumeration, with its source",
    openapi_extra=choices_operation(),
)
async def list_choices() -> Response:
    """The names that each field takes."""
    return json_answer(choices())
