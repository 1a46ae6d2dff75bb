"""POST /v1/batch: up to a thousand questions, each answered or refused as by its own route."""

from collections.abc import AsyncIterator, Mapping, Sequence

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from service.answers.checks import BatchAnswers
from service.api.access.authorization import caller_of
from service.api.answers import JSON
from service.api.compute import compute
from service.api.envelope import problem_of
from service.api.errors import CallerGone
from service.api.limits.rate_limits import count_questions
from service.api.openapi import examples, requires
from service.api.requests import CatalogueDep, LongJsonBody, StrictRoute, answer, is_long_launcher_text
from service.api.streams import yield_to_others
from service.catalogue import Catalogue
from service.features.batch import batch
from service.validation.json_text import refuse_faults

router = APIRouter(tags=["estimates"], route_class=StrictRoute)

FEW_QUESTIONS = 2
"""Most questions that the API process answers itself; more need a compute process."""
PART_QUESTIONS = 16
"""Questions that a compute process answers at a time. Source: a choice; some 50 ms."""


@router.post(
    "/v1/batch",
    summary="Many questions, each with its own status",
    description="Each question is answered or refused as by its own route; the pointers of a refusal start at the "
    "body of its question. An error in one question does not affect the others; an error in the whole request, such "
    "as too many questions, refuses all of them.",
    response_model=answer(BatchAnswers),
    response_description="One answer for each question, in the same order.",
    openapi_extra=requires("read") | examples("createBatch"),
)
async def create_batch(request: Request, body: LongJsonBody[batch.BatchRequest], catalogue: CatalogueDep) -> Response:
    """Answer questions in order; a refused one does not affect the others."""
    refuse_faults({**body, batch.QUESTIONS: None})
    questions = batch.read_batch(body)
    await count_questions(request, len(questions))
    parts = [questions[first : first + PART_QUESTIONS] for first in range(0, len(questions), PART_QUESTIONS)] or [()]
    # before the response begins, so that a refusal of the whole request has a status of its own
    first = await _answers(request, catalogue, parts[0], is_admitted=False)
    return StreamingResponse(_stream(request, catalogue, first, parts[1:]), media_type=JSON)


async def _stream(
    request: Request, catalogue: Catalogue, first: bytes, parts: Sequence[Sequence[object]]
) -> AsyncIterator[bytes]:
    yield b'{"answers":[' + first
    for part in parts:
        try:
            answers = await _answers(request, catalogue, part, is_admitted=True)
        except CallerGone:
            return
        except Exception as error:  # it fails every question of this part, and no other
            refusal = problem_of(request, error)
            answers = b",".join([_item(refusal.status_code, bytes(refusal.body))] * len(part))
        yield b"," + answers
    yield b"]}"


async def _answers(request: Request, catalogue: Catalogue, part: Sequence[object], *, is_admitted: bool) -> bytes:
    """Answers with their status, each body byte for byte that of its own route."""
    if len(part) <= FEW_QUESTIONS and not any(map(_is_long, part)):
        answered = []
        for question in part:
            answered.append(batch.answer_one(question, catalogue))
            await yield_to_others()
    else:
        answered = await compute(request, batch.answer_all, part, catalogue, is_admitted=is_admitted)
    responses = [_response(request, one) for one in answered]
    return b",".join(_item(one.status_code, bytes(one.body)) for one in responses)


def _is_long(question: object) -> bool:
    """Whether a question is a check whose launch text takes long to parse."""
    body = question.get(batch.BODY) if isinstance(question, Mapping) else None
    launch = body.get("launch") if isinstance(body, Mapping) else None
    content = launch.get("content") if isinstance(launch, Mapping) else None
    return isinstance(content, str) and is_long_launcher_text(content.encode(errors="replace"))


def _response(request: Request, answered: batch.AnsweredQuestion) -> Response:
    state = request.app.state
    for question in answered.checked_questions:
        state.checked_questions.keep(question, caller_of(request).owner)
    if answered.verdict is not None:
        state.metrics.verdicts.labels(answered.verdict).inc()
    return Response(answered.content) if answered.error is None else problem_of(request, answered.error)


def _item(status: int, body: bytes) -> bytes:
    return b'{"status":%d,"body":%b}' % (status, body)
