"""POST and GET of /v1/estimates, /v1/memory, /v1/flops and /v1/gpu-hours: one question, answered whole or in part."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.answers import estimates
from service.answers.names import COMPONENT
from service.api.access.authorization import CallerDep
from service.api.answers import JSON, json_answer
from service.api.compute import compute
from service.api.inputs import Database, catalogue_at, catalogue_of, is_explained, method_of
from service.api.openapi import examples, requires
from service.api.requests import (
    CatalogueDep,
    ExplainQuery,
    JsonBody,
    Parameters,
    RevisionQuery,
    StrictRoute,
    answer,
    query,
    whole_query,
)
from service.catalogue.choices import Choice, choices
from service.errors import Refused
from service.estimator.other_tools.comparison import TOOLS
from service.features.estimates.answers import answer_by, answer_explained, answer_of, answer_planned, timeline_json
from service.features.estimates.store import stored_answer
from service.validation.flat import FlatQuestion, body_of_flat
from service.validation.forms import ReadElsewhere, described_as
from service.validation.open_fields import NOT_PLANNED
from service.validation.question_parts import QuestionRequest
from service.validation.questions import read_question


class _Choices(ReadElsewhere):
    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        names = described_as(tuple[Choice, ...], handler)
        fields = {name: {"description": f"Names that {name} takes.", **names} for name in choices()}
        return {
            COMPONENT: "Choices",
            "type": "object",
            "description": "Choices by field.",
            "additionalProperties": False,
            "required": list(fields),
            "properties": fields,
        }


Choices = Annotated[Any, _Choices()]

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


@dataclass(frozen=True, slots=True)
class Part:
    """One estimating path and the part of the answer that it gives."""

    path: str
    name: str
    kind: type[estimates.Grounds]
    summary: str


PARTS = (
    Part("/v1/estimates", "Estimate", estimates.Answer, "Everything about one configuration"),
    Part("/v1/memory", "Memory", estimates.MemoryAnswer, "Whether the job fits, and bytes of every stage by kind"),
    Part("/v1/flops", "Flop", estimates.FlopAnswer, "Floating-point operations, model and hardware"),
    Part("/v1/gpu-hours", "GpuHours", estimates.GpuHoursAnswer, "Seconds, GPU-hours, days, USD, kWh"),
)


async def _answered(request: Request, part: Part, body: Any) -> Response:
    catalogue = await catalogue_of(request)
    if is_explained(request):  # takes as long as thirty answers
        return Response(await compute(request, answer_explained, part.kind, body, catalogue), media_type=JSON)
    try:
        return json_answer(answer_of(part.kind, body, catalogue))
    except Refused as refused:
        if NOT_PLANNED not in refused.problems:
            raise
    return Response(await compute(request, answer_planned, part.kind, body, catalogue), media_type=JSON)


MethodQuery = Annotated[
    Any,
    *query(
        {"type": "string", "enum": list(TOOLS)},
        "Answer as this other tool would, with the main reason why it differs from our own answer; what its formula "
        "does not read is refused. /v1/choices says what each is.",
    ),
]


def _asked(part: Part) -> Any:
    """The route of a nested question; without dependencies of its own, which cost a tenth of its time."""

    async def ask(
        request: Request, body: JsonBody[QuestionRequest], explain: ExplainQuery = None, rev: RevisionQuery = None
    ) -> Response:
        return await _answered(request, part, body)

    async def ask_by(
        request: Request,
        body: JsonBody[QuestionRequest],
        explain: ExplainQuery = None,
        rev: RevisionQuery = None,
        method: MethodQuery = None,
    ) -> Response:
        tool = method_of(request)
        if tool is None:
            return await _answered(request, part, body)
        catalogue = await catalogue_of(request)
        return json_answer(answer_by(tool, read_question(body, catalogue), catalogue))

    return ask_by if part.kind is estimates.MemoryAnswer else ask


def _asked_flat(part: Part) -> Any:
    async def ask_flat(
        request: Request,
        question: Annotated[Parameters, Depends(whole_query(FlatQuestion))],
        explain: ExplainQuery = None,
        rev: RevisionQuery = None,
    ) -> Response:
        return await _answered(request, part, body_of_flat(question))

    return ask_flat


for _part in PARTS:
    router.add_api_route(
        _part.path,
        _asked(_part),
        methods=["POST"],
        operation_id=f"create{_part.name}",
        summary=_part.summary,
        description="Ask with four objects; a name stands for a row of the catalogue. Not fitting is an answer too.",
        response_model=answer(
            estimates.MemoryAnswer | estimates.MethodAnswer if _part.kind is estimates.MemoryAnswer else _part.kind
        ),
        openapi_extra=requires("read") | examples("createEstimate"),
    )
    router.add_api_route(
        _part.path,
        _asked_flat(_part),
        operation_id=f"get{_part.name}",
        summary=_part.summary,
        description="The same question in its flat form: each field by its own name, and the same answer.",
        response_model=answer(_part.kind),
    )


@router.get("/v1/estimates/{estimate_id}", summary="An answer that was stored", response_model=answer(estimates.Answer))
def get_stored_estimate(
    request: Request,
    database: Database,
    caller: CallerDep,
    estimate_id: Annotated[
        str, Path(description="Id of the answer.", examples=["est_bcc8e6385ed0cbc7bc9d4ef58d62404d"])
    ],
) -> Response:
    """Of a scenario, a launch check or a check of the caller's owner; to an admin, of anyone's."""
    state = request.app.state
    checked = state.checked_questions
    waiting = partial(checked.find, owner=caller.visible_owner)
    found = stored_answer(
        database, caller.visible_owner, estimate_id, catalogue_at(request), waiting, checked.retry_for_replicas()
    )
    return Response(found, media_type=JSON)


@router.post(
    "/v1/memory/timeline",
    summary="Memory over a step, stage by stage",
    response_model=answer(estimates.TimelineAnswer),
    openapi_extra=requires("read") | examples("createEstimate"),
)
async def create_timeline(request: Request, body: JsonBody[QuestionRequest], catalogue: CatalogueDep) -> Response:
    """The same body as /v1/memory. Points are in order; their series follow the stage's kinds."""
    return Response(await compute(request, timeline_json, body, catalogue), media_type=JSON)


choices_router = APIRouter(tags=["choices"], route_class=StrictRoute)


@choices_router.get(
    "/v1/choices",
    summary="Every enumeration, with its source",
    response_model=answer(Choices),
    response_description="Choices by field.",
)
async def list_choices() -> Response:
    """The names that each field takes."""
    return json_answer(choices())
