"""Questions as files of launchers and frameworks, and such files as questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from annotated_types import MaxLen
from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from service.answers.exports import Export, ExportTargets, Imported, ImportFormats
from service.api import requests
from service.api.answers import JSON, json_answer, preferred
from service.api.errors import WrongParameter
from service.api.inputs import chosen
from service.api.openapi import TEXT_BODY, examples, request_bodies, requires
from service.errors import Problem, Refused
from service.estimator.question import Strict
from service.features.exports.exports import (
    COMMAND,
    export,
    import_file,
    imported_json,
    listed_formats,
    listed_targets,
    target_named,
)
from service.formats.sent import FILES
from service.formats.targets import FORMATS, TARGETS
from service.formats.text import LONGEST_FILE_BYTES, MOST_FILES
from service.text_bounds import FIELD
from service.validation.question_parts import QuestionRequest

router = APIRouter(tags=["exports"], route_class=requests.StrictRoute)

VERSION = "version"
ALLOW_LOSS = "allow_loss"
NOT_EXPRESSIBLE = "X-Not-Expressible"
"""Header with the fields that the file lacks, for callers that read only the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest(Strict):
    """The file of a training framework."""

    content: Annotated[str, MaxLen(LONGEST_FILE_BYTES)]
    """The file."""
    files: Annotated[Mapping[str, str], MaxLen(MOST_FILES)] | None = None
    """Files beside it, by name: a DeepSpeed file that a script's arguments name, accelerate's file, or the arguments
    that a DeepSpeed file takes its auto from. 256 KiB in all."""


TargetName = Annotated[
    str,
    Path(
        description="The tool; GET /v1/exports lists them with their versions.",
        examples=["megatron-lm"],
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

AllowLossDep = Annotated[
    str | None,
    requests.query_text(
        ALLOW_LOSS,
        {"type": "boolean", "default": False},
        "Write the file where what it does not express changes the job's memory or cost by more than 5 %, too.",
    ),
]


class _Options(NamedTuple):
    """Options of an export beside its question."""

    version: str | None
    command: str | None
    allow_loss: bool


async def _options(version: VersionDep, command: CommandDep, allow_loss: AllowLossDep) -> _Options:
    return _Options(version, command, chosen(ALLOW_LOSS, allow_loss, ["false", "true"]) == "true")


OptionsDep = Annotated[_Options, Depends(_options)]


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
    options: OptionsDep,
    body: requests.JsonBody[QuestionRequest],
    catalogue: requests.CatalogueDep,
) -> Response:
    """Send the same body as to /v1/estimates.

    Every field of recipe and layout is in the file, needs no setting there, or is listed in not_expressible with a
    remedy, and in a comment of the file. A file whose own job would take more than 5 % more or less memory or money is
    refused, unless allow_loss is true.
    """
    tool = target_named(target)
    try:
        version = chosen(VERSION, options.version, list(tool.versions))
        exported = export(body, catalogue, tool, version, options.command, allow_loss=options.allow_loss)
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


@router.get("/v1/imports", summary="Kinds of files that are read", response_model=requests.answer(ImportFormats))
async def list_import_formats() -> Response:
    """List formats with their syntax, releases and sources, and how many settings have each fate."""
    return json_answer(listed_formats())


ImportBody = Annotated[str | Mapping[str, Any], Depends(requests.text_or_json(ImportRequest))]

_IMPORT_BODIES = requires("read") | examples(
    "createImport",
    text={
        "schema": {"type": "string", "maxLength": LONGEST_FILE_BYTES},
        "examples": request_bodies("createImportOfText"),
    },
)


@router.post(
    "/v1/imports",
    summary="A framework's own file, whose tool is recognised, as a recipe and a layout",
    response_model=requests.answer(Imported),
    response_description="Model, recipe and layout, as far as the file sets them, and why it is of that tool.",
    openapi_extra=_IMPORT_BODIES,
)
async def create_recognised_import(request: Request, body: ImportBody) -> Response:
    """Turn a file of whichever tool into fields of a question; add a cluster to estimate it.

    A file of a tool that is not read is refused by the tool's name.
    """
    return await _imported(request, None, body)


@router.post(
    "/v1/imports/{format}",
    summary="A framework's own file as a recipe and a layout",
    response_model=requests.answer(Imported),
    response_description="Model, recipe and layout, as far as the file sets them.",
    openapi_extra=_IMPORT_BODIES,
)
async def create_import(request: Request, format: FormatName, body: ImportBody) -> Response:
    """Turn a framework's file into fields of a question; add a cluster to estimate it.

    Errors name the line and column of a wrong value. The answer lists settings that it does not know. A file of another
    tool is refused by that tool's name.
    """
    return await _imported(request, format, body)


async def _imported(request: Request, format: str | None, body: str | Mapping[str, Any]) -> Response:
    parts: Mapping[str, Any] = {FIELD: body} if isinstance(body, str) else body
    text, files = parts.get(FIELD), parts.get(FILES)
    files = {} if files is None else files
    if not isinstance(text, str) or parts.keys() - {FIELD, FILES}:
        message = f"the object does not consist of the field {FIELD} with a text, and of {FILES} where there are any"
        fix = "send the file in that field, or as plain text"
        raise Refused(Problem(field=FIELD, code="not_text", message=message, fix=fix))
    texts: list[Any] = [*files.values()] if isinstance(files, Mapping) else [None]
    if len(texts) > MOST_FILES or not all(isinstance(one, str) for one in texts):
        message = f"{FILES} is no object of at most {MOST_FILES} texts by the files' names"
        raise Refused(Problem(field=FILES, code="not_files", message=message, fix="give each file's text by its name"))
    if requests.is_long_launcher_text("".join((text, *texts)).encode()):
        return Response(await requests.read_in_process(request, imported_json, format, text, files), media_type=JSON)
    return json_answer(import_file(format, text, files))
