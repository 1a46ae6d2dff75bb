"""GET /v1/exports and POST /v1/exports/{target}: a question as the file that a launcher or a framework reads.

The file comes inside a JSON answer, beside what it does not hold; as text/plain it comes alone, and a header names
what it does not hold.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.accept import preferred
from service.api.answers import JSON, json_answer
from service.api.body import read_body
from service.api.catalogues import catalogue_of
from service.api.json_schema import (
    Schema,
    asked_in_body,
    json_response,
    parameter_ref,
    path_parameter,
    query_parameter,
    ref,
)
from service.api.operations import EXAMPLES
from service.api.problems import WrongParameter
from service.api.queries import REV, choice_of, one_of, takes_only
from service.errors import Refused
from service.exports.table import TARGETS
from service.workflows.exports import COMMAND, export, listed_targets, target_named

router = APIRouter(tags=["exports"])

VERSION = "version"
TEXT = "text/plain"
NOT_EXPRESSIBLE = "X-Not-Expressible"
"""Header that names the fields which the file does not hold, for those who read the file alone."""

TARGET = path_parameter(
    "target", "The tool; GET /v1/exports lists them with their versions.", "torchtitan", tuple(TARGETS)
)
PARAMETERS: tuple[Schema, ...] = (
    TARGET,
    query_parameter(
        VERSION,
        "The form of the file, where the tool's has changed; the newest listed first where absent.",
        {"type": "string"},
    ),
    query_parameter(
        COMMAND,
        "What a launcher is to start, such as train.py --lr 1e-4; the program of the recipe's stack where absent.",
        {"type": "string", "maxLength": 4096},
    ),
    parameter_ref(REV),
)

_HEADER = {"description": "Fields that the file does not hold.", "schema": {"type": "string"}}


def _operation() -> dict[str, Any]:
    answered = json_response(ref("Export"), "The file; as text/plain it comes alone.")
    answered["200"]["content"][TEXT] = {"schema": {"type": "string"}}
    answered["200"]["headers"] = {NOT_EXPRESSIBLE: _HEADER}
    return {
        "description": "The same body as /v1/estimates. Every field of recipe and layout is in the file, needs no "
        "place in it, or stands in not_expressible with what to do.",
        "parameters": list(PARAMETERS),
        "requestBody": asked_in_body(ref("QuestionRequest"), EXAMPLES),
        "responses": answered,
    }


@router.get(
    "/v1/exports",
    operation_id="listExportTargets",
    summary="Tools that a question can be written for",
    dependencies=[takes_only()],
    openapi_extra={"responses": json_response(ref("ExportTargets"))},
)
async def list_targets() -> Response:
    """Each with its versions, its file names and where its fields were read."""
    return json_answer({"items": listed_targets()})


@router.post(
    "/v1/exports/{target}",
    operation_id="createExport",
    summary="A question as a tool's own file",
    dependencies=[takes_only(VERSION, COMMAND, REV)],
    openapi_extra=_operation(),
)
async def write_export(request: Request, target: str) -> Response:
    """The launcher's or the framework's file for the question."""
    tool = target_named(target)
    version = choice_of(request, VERSION, list(tool.versions))
    command = one_of(request, COMMAND)
    catalogue = await catalogue_of(request)
    body = await read_body(request)
    try:
        found = export(body, catalogue, tool, version, command)
    except Refused as refused:
        if {problem.field for problem in refused.problems} == {COMMAND}:
            raise WrongParameter(*refused.problems) from None
        raise
    fields = ", ".join(dict.fromkeys(one.field for one in found.not_expressible))
    answer = json_answer(found)
    if preferred(request.headers.get("accept", ""), (JSON, TEXT)) == TEXT:
        saved_as = {"Content-Disposition": f'attachment; filename="{found.file_name}"'}
        answer = Response(found.content, media_type=f"{TEXT}; charset=utf-8", headers=saved_as)
    answer.headers[NOT_EXPRESSIBLE] = fields
    return answer
