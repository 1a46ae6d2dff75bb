"""GET /v1/cell/{metric}: one number as plain text, for WEBSERVICE, IMPORTDATA and Power Query.

A spreadsheet sends OPTIONS and HEAD before GET for every cell, follows no 308, and shows no body of
an error: so HEAD computes nothing, nothing redirects, and `on_error` puts errors into the cell.
"""

from collections.abc import Mapping
from typing import Any, get_args

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic_core import to_json

from service import __version__
from service.api.catalogues import catalogue_of
from service.api.conditional import is_head
from service.api.json_schema import parameter_ref
from service.api.problems import WrongParameter
from service.api.queries import REV
from service.catalogue import Catalogue
from service.errors import NotFound, Refused, UnknownRevision, Unreachable
from service.estimator import FORMULAS_VERSION
from service.estimator.memory_parts import Verdict
from service.workflows import cells
from service.workflows.flat import flat_fields
from service.workflows.wire import digest_of

router = APIRouter(tags=["cells"], default_response_class=PlainTextResponse)

NO_CATALOGUE = (UnknownRevision, Unreachable, WrongParameter)
"""Why there may be no catalogue to answer under."""

OPTIONS = {
    "num": "How what is not a whole number is written: mantissa and exponent, decimal point, or decimal comma.",
    "unit": "Unit of the number; the metric's own where absent.",
    "dec": "Decimal mark of the numbers in this query.",
    "on_error": "What an error becomes: a problem document, a text in the cell (#ERR code: why), or an empty cell.",
}


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


UNIT = {"description": "Unit of the number.", "schema": {"type": "string"}}
VERDICT = {
    "description": "Whether the job fits; the number is that of the job as asked, even where it does not.",
    "schema": {"enum": list(get_args(Verdict))},
}


def _operation(description: str, headers: dict[str, Any], example: str, *own: dict[str, Any]) -> dict[str, Any]:
    """What the contract adds to a route that answers one text."""
    text = {"schema": {"type": "string"}, "example": example}
    return {
        "parameters": [
            *own,
            *map(parameter_ref, (REV, *flat_fields())),
            *(_parameter(name, meaning, {"enum": list(cells.CHOICES[name])}) for name, meaning in OPTIONS.items()),
            _parameter(cells.REFRESH, "Changes nothing but the URL, so that a sheet asks anew.", {"type": "string"}),
        ],
        "responses": {"200": {"description": description, "headers": headers, "content": {"text/plain": text}}},
    }


ASKED = _parameter(
    cells.METRIC,
    "The metric of the cell, whose error is then explained too; where absent, ok speaks of the question alone.",
    {"type": "string"},
)
WHY = _operation("ok, or one line for each thing to mend.", {}, "ok", ASKED)
CELL = _operation("The number alone.", {"X-Unit": UNIT, "X-Verdict": VERDICT}, "7125e-2")


@router.get("/v1/cell/why", operation_id="getCellReason", summary="Why a cell shows an error", openapi_extra=WHY)
async def why(request: Request) -> Response:
    """Takes the query of the cell as it is, and its metric; always text."""
    if is_head(request):
        return _text(request, "", _asked_revision(request))
    try:
        catalogue = await catalogue_of(request)
    except NO_CATALOGUE as error:
        return _passing(cells.reason(error))
    return _text(request, cells.why(request.query_params.multi_items(), catalogue), catalogue.revision)


@router.get("/v1/cell/{metric}", operation_id="getCell", summary="One number of an answer", openapi_extra=CELL)
async def cell(request: Request, metric: str) -> Response:
    """Any number of an answer by its name, or by as much of its path as tells it apart."""
    if is_head(request):
        return _text(request, "", _asked_revision(request))
    given, question = cells.split_options(request.query_params.multi_items())
    on_error = cells.on_error_of(given)
    try:
        catalogue = await catalogue_of(request)
    except NO_CATALOGUE as error:
        if on_error == "problem":
            raise
        return _passing(cells.error_text(error) if on_error == "text" else "")
    try:
        found = cells.cell(metric, question, cells.read_options(given), catalogue)
    except (Refused, NotFound) as error:
        if on_error == "problem":
            raise
        return _text(request, cells.error_text(error) if on_error == "text" else "", catalogue.revision)
    said = {"X-Unit": found.unit, "X-Verdict": found.verdict}
    return _text(request, found.text, catalogue.revision, said)


def _text(request: Request, text: str, revision: str, said: Mapping[str, str] | None = None) -> Response:
    """The text of a cell under a catalogue.

    What decides the text decides its ETag: the path, the query, and the versions of what computes it. So that is known
    before the answer, and HEAD tells the same one for nothing.
    """
    inputs = [request.url.path, request.query_params.multi_items(), revision, FORMULAS_VERSION, __version__]
    headers = {"Cache-Control": "private, max-age=300", "ETag": f'"{digest_of(to_json(inputs))}"'}
    response = PlainTextResponse(text, headers=headers | dict(said or {}))
    if is_head(request):
        del response.headers["content-length"]
    return response


def _passing(text: str) -> Response:
    """Why there is no catalogue to answer under: it may be there in a moment, so nobody keeps the text."""
    return PlainTextResponse(text, headers={"Cache-Control": "no-store"})


def _asked_revision(request: Request) -> str:
    """The catalogue that GET would answer under, not looked up."""
    catalogue: Catalogue = request.app.state.catalogue
    return request.query_params.get(REV, catalogue.revision)
