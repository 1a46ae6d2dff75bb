"""POST /v1/batch: up to a thousand questions, each answered, or refused, as the route of its kind would.

The event loop works out one question at a time and lets others be answered between two of them. What is answered goes
out while the rest is worked out, so that a caller who hangs up ends it.
"""

from collections.abc import AsyncIterator, Sequence

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from service.answers.checks import Check
from service.api.answers import JSON, json_answer
from service.api.batch_schemas import batch_operation
from service.api.body import as_object, read_large_body
from service.api.catalogues import catalogue_of
from service.api.charges import charge_questions
from service.api.envelope import refusal_of
from service.api.json_text import refuse_faults
from service.api.queries import REV, takes_only
from service.api.steps import others_first
from service.catalogue import Catalogue
from service.workflows.batch import ANSWERED, BODY, QUESTIONS, read_batch, read_one

router = APIRouter(tags=["estimates"], dependencies=[takes_only(REV)])

CHUNK_BYTES = 1 << 16
"""Bytes that are sent at once. Source: a choice; a few answers, so that sending costs little beside them."""


@router.post(
    "/v1/batch",
    operation_id="createBatch",
    summary="Many questions, each with its own status",
    openapi_extra=batch_operation(),
)
async def ask_many(request: Request) -> Response:
    """The answers stand in the order of the questions; one that is refused leaves the others as they are."""
    catalogue, body = await catalogue_of(request), await read_large_body(request)
    refuse_faults({**body, QUESTIONS: None})
    questions = read_batch(body)
    await charge_questions(request, len(questions))
    return StreamingResponse(_answers(request, catalogue, questions), media_type=JSON)


async def _answers(request: Request, catalogue: Catalogue, questions: Sequence[object]) -> AsyncIterator[bytes]:
    text = bytearray(b'{"answers":[')
    for place, question in enumerate(questions):
        text += b"," if place else b""
        async with request.app.state.batch_turn:
            text += _answered(request, catalogue, question)
            await others_first()
        if len(text) >= CHUNK_BYTES:
            yield bytes(text)
            text.clear()
    yield bytes(text + b"]}")


def _answered(request: Request, catalogue: Catalogue, question: object) -> bytes:
    """The answer to one question with its status, its body byte for byte that of the route of its kind."""
    try:
        answer = _answer(request, catalogue, question)
    except Exception as error:  # whatever it is, the other questions have their answers
        answer = refusal_of(request, error)
    return b'{"status":%d,"body":%b}' % (answer.status_code, bytes(answer.body))


def _answer(request: Request, catalogue: Catalogue, question: object) -> Response:
    if isinstance(question, dict):
        refuse_faults({**question, BODY: None})
    kind, body = read_one(question)
    refuse_faults(body)
    state = request.app.state
    found = ANSWERED[kind](as_object(body), catalogue, state.checked_questions.keep)
    if isinstance(found, Check):
        state.metrics.verdicts.labels(found.verdict).inc()
    return json_answer(found)
