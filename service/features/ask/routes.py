"""GET /v1/ask: one sentence in, an answer and what was understood out."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.ask import SentenceAnswer
from service.api.answers import JSON
from service.api.compute import compute
from service.api.errors import WrongParameter
from service.api.inputs import single_value
from service.api.openapi import requires
from service.api.requests import CatalogueDep, RevisionQuery, StrictRoute, answer, query
from service.errors import Problem
from service.features.ask.ask import SENTENCE, sentence_json
from service.validation.sentences.grammar import LONGEST
from service.validation.sentences.question import EXAMPLE, read_sentence

router = APIRouter(tags=["ask"], route_class=StrictRoute)

SentenceQuery = Annotated[
    Any,
    *query(
        {"type": "string", "minLength": 1, "maxLength": LONGEST, "examples": [EXAMPLE]},
        "What is trained on what, as you would say it: a model and GPUs, and tokens, length, batch, precision, method, "
        "layout, software, price, deadline or budget where you know them.",
    ),
]


@router.get(
    "/v1/ask",
    summary="One sentence as a question, with its answer",
    response_model=answer(SentenceAnswer),
    openapi_extra=requires("read"),
)
async def ask_sentence(
    request: Request, catalogue: CatalogueDep, q: SentenceQuery = None, rev: RevisionQuery = None
) -> Response:
    """The same sentence always means the same question: a grammar reads it, without a model.

    Each part of it is a chip: understood, assumed or not understood. The layout is planned, with what the sentence says
    of it kept.
    """
    text = single_value(request, SENTENCE)
    if text is None:
        message = "q is missing: it holds the sentence"
        raise WrongParameter(Problem(SENTENCE, "required", message, f"give one, e.g. q={EXAMPLE}"))
    sentence = read_sentence(text, catalogue, SENTENCE)
    return Response(await compute(request, sentence_json, sentence, catalogue), media_type=JSON)
