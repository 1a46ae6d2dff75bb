"""GET /v1/exports and POST /v1/exports/{target}: a question as the file of a launcher or framework.

The file comes inside a JSON answer, beside what it does not hold; as text/plain it comes alone, and a header names
what it does not hold.

A file to import comes as text, or in a JSON object.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import JSON, json_answer, preferred
from service.api.catalogues import catalogue_of
from service.api.errors import WrongParameter
from service.api.openapi import (
    JSON_BODY,
    Schema,
    json_response,
    parameter_ref,
    path_parameter,
    query_parameter,
    ref,
    request_body,
)
from service.api.queries import REV, choice_of, one_of, takes_only
from service.api.requests import is_long_launcher_text, read_body, read_in_process, read_plain_text
from service.errors import Problem, Refused
from service.features.catalogue.list_openapi import one_example
from service.features.estimates.examples import EXAMPLES
from service.features.exports.exports import (
    COMMAND,
    export,
    format_named,
    import_file,
    imported,
    listed_targets,
    target_named,
)
from service.formats.targets import FORMATS, TARGETS
from service.formats.text import LONGEST_FILE_BYTES
from service.text_bounds import FIELD

router = APIRouter(tags=["exports"])

VERSION = "version"
TEXT = "text/plain"
NOT_EXPRESSIBLE = "X-Not-Expressible"
"""Header with the fields that the file lacks, for callers that read only the file."""

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
        "requestBody": request_body(ref("QuestionRequest"), EXAMPLES),
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
    """List tools with versions, file names and sources."""
    return json_answer({"items": listed_targets()})


@router.post(
    "/v1/exports/{target}",
    operation_id="createExport",
    summary="A question as a tool's own file",
    dependencies=[takes_only(VERSION, COMMAND, REV)],
    openapi_extra=_operation(),
)
async def write_export(request: Request, target: str) -> Response:
    """Return the file of the launcher or framework."""
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


ARGUMENTS = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--ffn-hidden-size 14336 --vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear "
    "--position-embedding-type rope --untie-embeddings-and-output-weights --bf16 --seq-length 8192 "
    "--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 2 --sequence-parallel "
    "--use-distributed-optimizer"
)
SUMMARY = "Arguments of Megatron-LM, for /v1/imports/megatron-lm"

OPERATION: dict[str, Any] = {
    "description": "What the file says, field by field, ready to be asked with a cluster beside it. A wrong value is "
    "refused with its line and column; settings that are not understood are listed.",
    "parameters": [
        path_parameter(
            "format",
            "; ".join(f"{kind.name}: {kind.meaning}" for kind in FORMATS.values()),
            "megatron-lm",
            tuple(FORMATS),
        )
    ],
    "requestBody": {
        "required": True,
        "content": {
            TEXT: {
                "schema": {"type": "string", "maxLength": LONGEST_FILE_BYTES},
                "examples": one_example(SUMMARY, ARGUMENTS),
            },
            JSON_BODY: {"schema": ref("ImportRequest"), "examples": one_example(SUMMARY, {FIELD: ARGUMENTS})},
        },
    },
    "responses": json_response(ref("Imported"), "Model, recipe and layout, as far as the file says them."),
}


@router.post(
    "/v1/imports/{format}",
    operation_id="createImport",
    summary="A framework's own file as a recipe and a layout",
    dependencies=[takes_only()],
    openapi_extra=OPERATION,
)
async def read_file(request: Request, format: str) -> Response:
    """Read a file as parts of a question."""
    kind = format_named(format)
    is_json = request.headers.get("content-type", "").startswith(JSON_BODY)
    text = _held_in(await read_body(request)) if is_json else await read_plain_text(request)
    if is_long_launcher_text(text.encode()):
        return Response(await read_in_process(request, imported, kind.name, text), media_type=JSON_BODY)
    return json_answer(import_file(kind, text))


def _held_in(body: Any) -> str:
    text = body.get(FIELD)
    if isinstance(text, str) and len(body) == 1:
        return text
    message = f"the object has not the one field {FIELD}, a text"
    raise Refused(Problem(field=FIELD, code="not_text", message=message, fix="send the file as that field, or alone"))
