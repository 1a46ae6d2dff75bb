"""POST /v1/prices/import: prices from a spreadsheet, as CSV, become a team's own rows in one change."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from service.api.answers import json_answer
from service.api.body import read_table_text
from service.api.callers import caller_of
from service.api.json_schema import CSV_BODY, Schema, json_response, query_parameter, ref
from service.api.problems import problem_response
from service.api.queries import choice_of, takes_only
from service.api.row_examples import one_example
from service.api.turns import in_turn
from service.workflows.price_import import ImportRefused, ImportReport, Manner, import_prices

router = APIRouter(tags=["catalogue"])

CHOICES: dict[str, tuple[str, ...]] = {"dry_run": ("false", "true"), "on_error": ("refuse", "skip"), "dec": (".", ",")}
"""Parameters and what they may be; the first one where absent."""
MEANINGS = {
    "dry_run": "Whether to tell only what would be done.",
    "on_error": "What is done about wrong rows: refuse the whole table, or skip them and import the others.",
    "dec": "Decimal mark of the numbers in the table.",
}
EXAMPLE = "provider,gpu,region,price_model,usd_per_gpu_hour\r\nour-cluster,h100,all,on-demand,1.9\r\n"


def _parameter(name: str) -> Schema:
    schema = {"type": "string", "enum": list(CHOICES[name]), "default": CHOICES[name][0]}
    return query_parameter(name, MEANINGS[name], schema)


OPERATION: dict[str, Any] = {
    "parameters": [_parameter(name) for name in CHOICES],
    "requestBody": {
        "required": True,
        "description": "UTF-8 with a header of column names of the list; comma, semicolon or tab between the cells.",
        "content": {CSV_BODY: {"schema": {"type": "string"}, "examples": one_example("One price", EXAMPLE)}},
    },
    "responses": json_response(ref("ImportReport"), "What was done, and what is wrong with rows that were skipped."),
}


@router.post(
    "/v1/prices/import",
    operation_id="importPrices",
    summary="Own prices from a spreadsheet",
    dependencies=[takes_only(*CHOICES)],
    openapi_extra=OPERATION,
)
@in_turn
def import_table(request: Request, content: Annotated[bytes, Depends(read_table_text)]) -> Response:
    """All rows or none, unless wrong ones are to be skipped; what the list gives as CSV can be imported back."""
    given = {name: choice_of(request, name, choices) for name, choices in CHOICES.items()}
    manner = Manner(
        mark="," if given["dec"] == "," else ".",
        skips=given["on_error"] == "skip",
        is_trial=given["dry_run"] == "true",
        caller=caller_of(request),
    )
    try:
        return json_answer(import_prices(request.app.state.history, content, manner))
    except ImportRefused as refused:
        return _refusal(request, refused.report)


def _refusal(request: Request, report: ImportReport) -> Response:
    """The problem document of a table with wrong rows: the first ones as errors, all of them in its report."""
    detail = f"{report.failed} of {report.rows} rows are wrong, so none was imported; mend them, or say on_error=skip"
    errors = [asdict(finding) for finding in report.findings]
    return problem_response(request.scope, "refused", detail, errors=errors, report=report)
