"""POST and GET of /v1/estimates, /v1/memory, /v1/flops and /v1/gpu-hours: one question, its answer whole or in part.

The routes are asynchronous because an answer takes a millisecond or two of pure computation: the
catalogue is in memory, and no route here touches the database.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.body import read_body
from service.api.operations import flat_operation, question_operation
from service.api.problems import WrongParameter
from service.errors import Problem
from service.workflows import estimates
from service.workflows.flat import body_of_flat
from service.workflows.questions import read_question
from service.workflows.wire import to_bytes

router = APIRouter(tags=["estimates"])

TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Part:
    """One estimating path and the part of the answer that it gives."""

    path: str
    name: str
    schema: str
    summary: str
    of: Callable[[estimates.Answer], Any]


PARTS = (
    Part("/v1/estimates", "Estimate", "Answer", "Everything about one configuration", lambda answer: answer),
    Part("/v1/memory", "Memory", "MemoryAnswer", "Does it fit? Bytes of every stage, by kind", estimates.memory_part),
    Part("/v1/flops", "Flop", "FlopAnswer", "Floating-point operations, model and hardware", estimates.flop_part),
    Part("/v1/gpu-hours", "GpuHours", "GpuHoursAnswer", "Seconds, GPU-hours, days, USD, kWh", estimates.gpu_hours_part),
)


def _answered(request: Request, body: Mapping[str, Any], part: Part, *, explain: bool) -> Response:
    catalogue = request.app.state.catalogue
    answer = estimates.answer(read_question(body, catalogue), catalogue, explain=explain)
    return Response(to_bytes(part.of(answer)), media_type="application/json")


def _split_explain(request: Request) -> tuple[bool, list[tuple[str, str]]]:
    """Whether explanations are asked for, and the other query parameters."""
    pairs = request.query_params.multi_items()
    asked = [value for name, value in pairs if name == "explain"]
    if len(asked) > 1 or any(value not in TRUTH for value in asked):
        message = "explain is neither true nor false; it decides whether equations come with the answer"
        fix = "say explain=true, once, or leave it out"
        raise WrongParameter(Problem(field="explain", code="not_true_or_false", message=message, fix=fix))
    return any(TRUTH[value] for value in asked), [pair for pair in pairs if pair[0] != "explain"]


def _add_routes(part: Part) -> None:
    async def ask(request: Request) -> Response:
        explain, others = _split_explain(request)
        if others:
            message = "only explain is a query parameter of a POST; any other would be ignored"
            fix = "put every other field into the body"
            raise WrongParameter(Problem(field="", code="unknown_parameter", message=message, fix=fix))
        return _answered(request, await read_body(request), part, explain=explain)

    async def ask_flat(request: Request) -> Response:
        explain, pairs = _split_explain(request)
        return _answered(request, body_of_flat(pairs), part, explain=explain)

    post, get = question_operation(part.schema), flat_operation(part.schema)
    router.post(part.path, operation_id=f"create{part.name}", summary=part.summary, openapi_extra=post)(ask)
    router.get(part.path, operation_id=f"get{part.name}", summary=part.summary, openapi_extra=get)(ask_flat)


for _part in PARTS:
    _add_routes(_part)
