"""GET /v1/cell/table.csv and /v1/cell/estimate.xml: many numbers in one request, for sheets that read tables or XML.

They stand before /v1/cell/{metric}, whose names have no ending of a file.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.catalogues import catalogue_of
from service.api.cell_answers import (
    ERROR_FORMS,
    NO_CATALOGUE,
    head_answer,
    passing_text,
    sheet_parameters,
    sheet_text,
)
from service.api.compute import compute
from service.api.conditional import is_head
from service.api.json_schema import query_parameter
from service.api.steps import finished
from service.catalogue import Catalogue
from service.errors import NotFound, Refused
from service.workflows import cell_tables, cells
from service.workflows.cells import Pairs

router = APIRouter(tags=["cells"], default_response_class=Response)

NAMED = query_parameter(
    cell_tables.METRICS,
    "Names of the numbers, as cells take them, with ; between them; the main ones where absent.",
    {"type": "string"},
)


FEW_ROWS = 2
"""Answers that are worked out between those to others; more are in a process of their own."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to tell many numbers."""

    path: str
    operation_id: str
    summary: str
    made: Callable[[Request, Pairs, Catalogue], Awaitable[str]]


async def _table(request: Request, parameters: Pairs, catalogue: Catalogue) -> str:
    if cell_tables.rows_of(parameters) <= FEW_ROWS:
        return await finished(request, cell_tables.table_csv(parameters, catalogue))
    found: str = await compute(request, cell_tables.table_csv, parameters, catalogue)
    return found


async def _xml(_: Request, parameters: Pairs, catalogue: Catalogue) -> str:
    return cell_tables.estimate_xml(parameters, catalogue)


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


def _operation(form: Form) -> dict[str, Any]:
    content = {ERROR_FORMS[form.operation_id].media_type: {"schema": {"type": "string"}}}
    return {
        "parameters": sheet_parameters(NAMED, without="unit"),
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
            return passing_text(errors.shown(cells.error_text(error), on_error), errors.media_type)
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
    router.add_api_route(
        _form.path,
        _route(_form),
        operation_id=_form.operation_id,
        summary=_form.summary,
        openapi_extra=_operation(_form),
    )
