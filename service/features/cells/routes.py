"""GET /v1/cell/{metric}: one number as plain text, for WEBSERVICE, IMPORTDATA and Power Query.

A spreadsheet sends OPTIONS and HEAD before GET for every cell, follows no 308, and shows no body of
an error: so HEAD computes nothing, nothing redirects, and `on_error` puts errors into the cell.

/v1/cell/table.csv and /v1/cell/estimate.xml are mounted before /v1/cell/{metric}; no metric has a file ending.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from service.api.caching import is_head
from service.api.catalogues import catalogue_of
from service.api.computing.compute import compute
from service.api.openapi import path_parameter, query_parameter
from service.api.streams import finish
from service.catalogue import Catalogue
from service.errors import NotFound, Refused
from service.estimator.answer import Verdict
from service.features.cells import cells, tables
from service.features.cells.answers import (
    ERROR_FORMS,
    NO_CATALOGUE,
    head_answer,
    sheet_parameters,
    sheet_text,
    uncached_text,
)
from service.features.cells.cells import Pairs

router = APIRouter(tags=["cells"], default_response_class=PlainTextResponse)

ERRORS = ERROR_FORMS["getCell"]
UNIT = {"description": "Unit of the number.", "schema": {"type": "string"}}
VERDICT = {
    "description": "Whether the job fits; the number is that of the job as asked, even where it does not.",
    "schema": {"enum": list(get_args(Verdict))},
}


def _operation(description: str, headers: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI of an operation that answers one text."""
    text = {"schema": {"type": "string"}}
    return {
        "parameters": sheet_parameters(own),
        "responses": {"200": {"description": description, "headers": headers, "content": {"text/plain": text}}},
    }


METRIC_PARAMETER = query_parameter(
    cells.METRIC,
    "The metric of the cell, whose error is then explained too; where absent, ok speaks of the question alone.",
    {"type": "string"},
)
WHY = _operation("ok, or one line for each thing to mend.", {}, METRIC_PARAMETER)
NUMBER = path_parameter("metric", "Name of the number, or as much of its path as tells it apart.", "step_seconds")
CELL = _operation("The number alone.", {"X-Unit": UNIT, "X-Verdict": VERDICT}, NUMBER)


@router.get("/v1/cell/why", operation_id="getCellReason", summary="Why a cell shows an error", openapi_extra=WHY)
async def why(request: Request) -> Response:
    """Explain a cell, given its query and metric; always text."""
    if is_head(request):
        return head_answer(request)
    try:
        catalogue = await catalogue_of(request)
    except NO_CATALOGUE as error:
        return uncached_text(cells.reason(error))
    return sheet_text(request, cells.why(request.query_params.multi_items(), catalogue), catalogue.revision)


@router.get("/v1/cell/{metric}", operation_id="getCell", summary="One number of an answer", openapi_extra=CELL)
async def cell(request: Request, metric: str) -> Response:
    """Any number of an answer by its name, or by as much of its path as tells it apart."""
    if is_head(request):
        return head_answer(request)
    given, question = cells.split_options(request.query_params.multi_items())
    on_error = cells.on_error_of(given)
    try:
        catalogue = await catalogue_of(request)
    except NO_CATALOGUE as error:
        if on_error == "problem":
            raise
        return uncached_text(ERRORS.shown(cells.error_text(error), on_error))
    try:
        found = cells.cell(metric, question, cells.read_options(given), catalogue)
    except (Refused, NotFound) as error:
        if on_error == "problem":
            raise
        return sheet_text(request, ERRORS.shown(cells.error_text(error), on_error), catalogue.revision)
    headers = {"X-Unit": found.unit, "X-Verdict": found.verdict}
    return sheet_text(request, found.text, catalogue.revision, headers)


table_router = APIRouter(tags=["cells"], default_response_class=Response)

METRICS_PARAMETER = query_parameter(
    tables.METRICS,
    "Names of the numbers, as cells take them, with ; between them; the main ones where absent.",
    {"type": "string"},
)


FEW_ROWS = 2
"""Answers computed in the API process; more need a compute process."""


@dataclass(frozen=True, slots=True)
class Form:
    """One format of many numbers."""

    path: str
    operation_id: str
    summary: str
    made: Callable[[Request, Pairs, Catalogue], Awaitable[str]]


async def _table(request: Request, parameters: Pairs, catalogue: Catalogue) -> str:
    if tables.rows_of(parameters) <= FEW_ROWS:
        return await finish(request, tables.table_csv(parameters, catalogue))
    found: str = await compute(request, tables.table_csv, parameters, catalogue)
    return found


async def _xml(_: Request, parameters: Pairs, catalogue: Catalogue) -> str:
    return tables.estimate_xml(parameters, catalogue)


FORMS = (
    Form(
        "/v1/cell/table.csv",
        "getCellTable",
        "Numbers of an answer as CSV, or of several: a field with several values (tp=1;2;4) is swept",
        _table,
    ),
    Form(
        "/v1/cell/estimate.xml",
        "getCellXml",
        "Numbers of an answer as XML without a namespace, for FILTERXML",
        _xml,
    ),
)


def _table_operation(form: Form) -> dict[str, Any]:
    content = {ERROR_FORMS[form.operation_id].media_type: {"schema": {"type": "string"}}}
    return {
        "parameters": sheet_parameters(METRICS_PARAMETER, without="unit"),
        "responses": {"200": {"description": "The numbers.", "content": content}},
    }


def _route(form: Form) -> Callable[[Request], Awaitable[Response]]:
    errors = ERROR_FORMS[form.operation_id]

    async def tell(request: Request) -> Response:
        if is_head(request):
            return head_answer(request, errors.media_type)
        parameters = request.query_params.multi_items()
        on_error = cells.on_error_of(cells.split_options(parameters)[0])
        try:
            catalogue = await catalogue_of(request)
        except NO_CATALOGUE as error:
            if on_error == "problem":
                raise
            return uncached_text(errors.shown(cells.error_text(error), on_error), errors.media_type)
        try:
            text = await form.made(request, parameters, catalogue)
        except (Refused, NotFound) as error:
            if on_error == "problem":
                raise
            text = errors.shown(cells.error_text(error), on_error)
        return sheet_text(request, text, catalogue.revision, media_type=errors.media_type)

    tell.__doc__ = "Each number with its unit, a prediction with its ends; one that is not known with the reason."
    return tell


for _form in FORMS:
    table_router.add_api_route(
        _form.path,
        _route(_form),
        operation_id=_form.operation_id,
        summary=_form.summary,
        openapi_extra=_table_operation(_form),
    )
