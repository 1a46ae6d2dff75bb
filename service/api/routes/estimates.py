"""POST and GET of /v1/estimates, /v1/memory, /v1/flops and /v1/gpu-hours: one question, its answer whole or in part.

POST /v1/memory?method= answers as another tool would.

The routes are asynchronous because an answer takes a millisecond or two of pure computation: the
catalogue is in memory, and no route here waits for the database: only an earlier catalogue that
nobody asked for lately is read from there, on another thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, Grounds, MemoryAnswer, MethodAnswer
from service.api.answers import JSON, json_answer
from service.api.body import read_body
from service.api.catalogues import catalogue_of
from service.api.compute import compute
from service.api.operations import flat_operation, memory_operation, question_operation
from service.api.queries import EXPLAIN, METHOD, REV, is_explained, method_of, takes_only
from service.estimator.names import ToolName
from service.workflows.estimates import answer_explained, answer_of
from service.workflows.flat import body_of_flat
from service.workflows.methods import answer_by
from service.workflows.questions import read_question

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
