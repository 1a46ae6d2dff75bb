"""POST /v1/profiles: where the time of a profiled training step goes, beside its prediction."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from fastapi.responses import Response
from pydantic import WithJsonSchema

from service.answers.profiles import ProfileAnswer
from service.api.answers import JSON
from service.api.compute import compute
from service.api.compute_process import Large
from service.api.errors import WrongParameter
from service.api.inputs import choice_of, single_value
from service.api.openapi import JSON_BODY, examples, requires
from service.api.requests import BodyForm, CatalogueDep, Parameters, StrictRoute, answer, query, whole_query
from service.calibration.traces import FEWER, refused
from service.errors import NotJson, Problem, Refused
from service.features.profiles.profiles import profile_json
from service.validation.flat import FlatQuestion, body_of_flat
from service.validation.json_text import parse_object
from service.validation.questions import read_question

router = APIRouter(tags=["profiles"], route_class=StrictRoute)

GZIP_BODY = "application/gzip"
DEADLINE_SECONDS = 60.0
"""Longest time for one trace. Source: a choice; the longest takes some 40 s."""

TraceBody = Annotated[
    Any,
    WithJsonSchema({"type": "object", "description": "A trace of torch.profiler in Chrome's format."}),
    BodyForm((JSON_BODY, GZIP_BODY, "application/octet-stream"), parse=None),
    Body(media_type=JSON_BODY, default_factory=bytes),
]
QuestionQuery = Annotated[
    Any,
    *query(
        {"type": "string"},
        "The question as JSON, as POST /v1/estimates takes it; else its fields by their own names. The trace alone is "
        "answered where both are absent.",
    ),
]
RECORDS = ("none", "products")
RecordsQuery = Annotated[
    Any,
    *query(
        {"enum": list(RECORDS), "default": RECORDS[0]},
        "products: add the matrix products as a record for POST /v1/measurements, on which calibrations are fitted.",
    ),
]
_DOCUMENT = examples("createProfile")
_DOCUMENT["requestBody"]["content"][GZIP_BODY] = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/v1/profiles",
    operation_id="createProfile",
    summary="Where does the time of a training step go, beside what was predicted?",
    description="A trace of torch.profiler, plain or compressed by gzip, up to 64 MiB as sent and 512 MiB as text. The "
    "question is in the query. Nothing is stored.",
    response_model=answer(ProfileAnswer),
    openapi_extra=requires("read") | _DOCUMENT,
)
async def create_profile(
    request: Request,
    trace: TraceBody,
    flat: Annotated[Parameters, Depends(whole_query(FlatQuestion))],
    catalogue: CatalogueDep,
    *,
    question: QuestionQuery = None,
    records: RecordsQuery = None,
) -> Response:
    """Profile a trace, and compare it with the estimate of a question."""
    has_records = choice_of(request, "records", RECORDS) != RECORDS[0]
    try:
        body = _question(single_value(request, "question"), flat)
        if body is not None:
            read_question(body, catalogue)
    except Refused as error:
        raise WrongParameter(*error.problems) from None
    try:
        content = await compute(
            request, profile_json, Large(trace), body, catalogue, has_records, deadline_seconds=DEADLINE_SECONDS
        )
    except Refused as error:
        if error.problems[0].code == "took_too_long":
            raise refused(
                "took_too_long", f"the trace takes longer to read than {DEADLINE_SECONDS:.0f} s", FEWER
            ) from None
        raise
    return Response(content, media_type=JSON)


def _question(text: str | None, flat: Parameters) -> Any:
    if text is None:
        return body_of_flat(flat) if flat else None
    if flat:
        message = "the question is given both as JSON and by its fields"
        raise Refused(Problem(field="question", code="contradiction", message=message, fix="give one of them"))
    try:
        return parse_object(text.encode())
    except NotJson as error:
        fix = "give the body of POST /v1/estimates, URL-encoded"
        raise Refused(Problem(field="question", code="not_json", message=str(error), fix=fix)) from None
