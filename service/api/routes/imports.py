"""POST /v1/imports/{format}: the file of a training framework as the recipe and the layout that it says.

The body is the file as text, or a JSON object that holds it.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import json_answer
from service.api.body import read_body, read_plain_text
from service.api.json_schema import JSON_BODY, json_response, path_parameter, ref
from service.api.long_bodies import is_long_launch, read_apart
from service.api.queries import takes_only
from service.api.row_examples import one_example
from service.errors import Problem, Refused
from service.exports.back.entries import LONGEST_FILE_BYTES
from service.exports.back.formats import FORMATS
from service.text_bounds import FIELD
from service.workflows.imports import format_named, import_file, imported

router = APIRouter(tags=["exports"])

TEXT = "text/plain"

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
    """The way back from a file to a question."""
    kind = format_named(format)
    is_json = request.headers.get("content-type", "").startswith(JSON_BODY)
    text = _held_in(await read_body(request)) if is_json else await read_plain_text(request)
    if is_long_launch(text.encode()):
        return Response(await read_apart(request, imported, kind.name, text), media_type=JSON_BODY)
    return json_answer(import_file(kind, text))


def _held_in(body: Any) -> str:
    text = body.get(FIELD)
    if isinstance(text, str) and len(body) == 1:
        return text
    message = f"the object has not the one field {FIELD}, a text"
    raise Refused(Problem(field=FIELD, code="not_text", message=message, fix="send the file as that field, or alone"))
