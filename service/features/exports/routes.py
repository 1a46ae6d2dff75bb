"""Questions as files of launchers and frameworks, and such files as questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import MaxLen
from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from service.answers.exports import Export, ExportTargets, Imported
from service.api import requests
from service.api.answers import JSON, json_answer, preferred
from service.api.errors import WrongParameter
from service.api.inputs import chosen
from service.api.openapi import TEXT_BODY, examples, request_bodies, requires
from service.errors import Problem, Refused
from service.estimator.question import Strict
from service.features.exports.exports import COMMAND, export, import_file, imported_json, listed_targets, target_named
from service.formats.targets import FORMATS, TARGETS
from service.formats.text import LONGEST_FILE_BYTES
from service.text_bounds import FIELD
from service.validation.question_parts import QuestionRequest

router = APIRouter(tags=["exports"], route_class=requests.StrictRoute)

VERSION = "version"
NOT_EXPRESSIBLE = "X-Not-Expressible"
"""Header with the fields that the file lacks, for callers that read only the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest(Strict):
    """The file of a training framework."""

    content: Annotated[str, MaxLen(LONGEST_FILE_BYTES)]
    """The file."""


TargetName = Annotated[
    str,
    Path(
        description="The tool; GET /v1/exports lists them with their versions.",
        examples=["torchtitan"],
        json_schema_extra={"enum": list(TARGETS)},
    ),
]
FormatName = Annotated[
    str,
    Path(
        description="; ".join(f"{kind.name}: {kind.meaning}" for kind in FORMATS.values()),
        examples=["megatron-lm"],
        json_schema_extra={"enum": list(FORMATS)},
    ),
]
VersionDep = Annotated[
    str | None,
    requests.query_text(
        VERSION,
        {"type": "string"},
        "Version of the tool's file format, where that has changed; absent, the newest, which is listed first.",
    ),
]
CommandDep = Annotated[
    str | None,
    requests.query_text(
        COMMAND,
        {"type": "string", "maxLength": 4096},
        "Command for a launcher to start, such as train.py --lr 1e-4; absent, the program of the recipe's stack.",
    ),
]


@router.get(
    "/v1/exports", summary="Tools that a question can be written for", response_model=requests.answer(ExportTargets)
)
async def list_export_targets() -> Response:
    """List tools with versions, file names and sources."""
    return json_answer(listed_targets())


@router.post(
    "/v1/exports/{target}",
    summary="A question as a tool's own file",
    response_model=requests.answer(Export),
    response_description="The file; as text/plain it comes alone.",
    responses={
        200: {
            "content": {TEXT_BODY: {"schema": {"type": "string"}}},
            "headers": {
                NOT_EXPRESSIBLE: {"description": "Fields that the file cannot express.", "schema": {"type": "string"}}
            },
        }
    },
    openapi_extra=requires("read") | examples("createEstimate"),
)
async def create_export(
    request: Request,
    target: TargetName,
    version: VersionDep,
    command: CommandDep,
    body: requests.JsonBody[QuestionRequest],
    catalogue: requests.CatalogueDep,
) -> Response:
    """Send the same body as to /v1/estimates.

    Every field of recipe and layout is in the file, needs no setting there, or is listed in not_expressible with a
    remedy.
    """
    tool = target_named(target)
    try:
        exported = export(body, catalogue, tool, chosen(VERSION, version, list(tool.versions)), command)
    except Refused as refused:
        if {problem.field for problem in refused.problems} == {COMMAND}:
            raise WrongParameter(*refused.problems) from None
        raise
    written = json_answer(exported)
    if preferred(request.headers.get("accept", ""), (JSON, TEXT_BODY)) == TEXT_BODY:
        saved_as = {"Content-Disposition": f'attachment; filename="{exported.file_name}"'}
        written = Response(exported.content, media_type=f"{TEXT_BODY}; charset=utf-8", headers=saved_as)
    written.headers[NOT_EXPRESSIBLE] = ", ".join(dict.fromkeys(one.field for one in exported.not_expressible))
    return written


@router.post(
    "/v1/imports/{format}",
    summary="A framework's own file as a recipe and a layout",
    response_model=requests.answer(Imported),
    response_description="Model, recipe and layout, as far as the file sets them.",
    openapi_extra=requires("read")
    | examples(
        "createImport",
        text={
            "schema": {"type": "string", "maxLength": LONGEST_FILE_BYTES},
            "examples": request_bodies("createImportOfText"),
        },
    ),
)
async def create_import(
    request: Request,
    format: FormatName,
    body: Annotated[str | Mapping[str, Any], Depends(requests.text_or_json(ImportRequest))],
) -> Response:
    """Turn a framework's file into fields of a question; add a cluster to estimate it.

    Errors name the line and column of a wrong value. The answer lists settings that it does not know.
    """
    text = body if isinstance(body, str) else body.get(FIELD)
    if not isinstance(text, str) or not (isinstance(body, str) or len(body) == 1):
        message = f"the object does not consist of the one field {FIELD} with a text"
        fix = "send the file in that field, or as plain text"
        raise Refused(Problem(field=FIELD, code="not_text", message=message, fix=fix))
    if requests.is_long_launcher_text(text.encode()):
        return Response(await requests.read_in_process(request, imported_json, format, text), media_type=JSON)
    return json_answer(import_file(format, text))
