"""POST, PUT, PATCH and DELETE under /v1/models, /v1/gpus and the other lists of the catalogue: custom rows.

These routes write to the database: they pass the write queue, then run on threads, and update the catalogue in memory
before they answer. A change of a shipped row is 409, not 403: no caller may change it.
"""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import SINGULAR, caller_of
from service.api.answers import JSON, json_answer
from service.api.caching import IfMatch, idempotent, row_etag
from service.api.computing.write_queue import on_compute_threads, queued
from service.api.errors import WrongParameter, problem_response
from service.api.openapi import CSV_BODY, Schema, json_response, query_parameter, ref
from service.api.queries import choice_of, one_of, takes_only
from service.api.requests import JsonObject, MergePatch, is_long, read_in_process, read_table_text
from service.catalogue import Holdings
from service.errors import Conflict, Refused
from service.features.catalogue.custom_rows import (
    RowChange,
    create_row,
    delete_row,
    import_model,
    patch_row,
    replace_row,
)
from service.features.catalogue.list_openapi import OWNER, one_example
from service.features.catalogue.lists import LISTINGS, Listing
from service.features.catalogue.openapi import (
    create_operation,
    delete_operation,
    import_operation,
    patch_operation,
    replace_operation,
)
from service.features.catalogue.price_import import (
    ImportDraft,
    ImportOptions,
    ImportRefused,
    ImportReport,
    draft_import,
    refuse_wrong,
    write_import,
)
from service.store.history import History
from service.tabular.lists import Record
from service.validation.serialization import to_bytes

router = APIRouter(tags=["catalogue"])

NAMES = ("slug", "name")
"""Query parameters of an import beside the config."""


def _created(plural: str, key: str, record: Record, answer: Any) -> Response:
    headers = {"Location": f"/v1/{plural}/{record[key]}", "ETag": row_etag(record)}
    return Response(to_bytes(answer), status_code=201, headers=headers, media_type=JSON)


def _changed(record: Record) -> Response:
    response = json_answer(record)
    response.headers["ETag"] = row_etag(record)
    return response


def _add_routes(plural: str, listing: Listing) -> None:
    singular, key, path = SINGULAR[plural], listing.key.name, f"/v1/{plural}"
    one = f"{path}/{{name:path}}"

    def create(request: Request, body: JsonObject) -> Response:
        record = create_row(request.app.state.history, listing, caller_of(request), body)
        return _created(plural, key, record, record)

    def replace(request: Request, name: str, is_current: IfMatch, body: JsonObject) -> Response:
        change = RowChange(listing, name, is_current, caller_of(request), one_of(request, OWNER))
        return _changed(replace_row(request.app.state.history, change, body))

    def patch(request: Request, name: str, is_current: IfMatch, body: MergePatch) -> Response:
        change = RowChange(listing, name, is_current, caller_of(request), one_of(request, OWNER))
        return _changed(patch_row(request.app.state.history, change, body))

    def delete(request: Request, name: str, is_current: IfMatch) -> Response:
        change = RowChange(listing, name, is_current, caller_of(request), one_of(request, OWNER))
        delete_row(request.app.state.history, change)
        return Response(status_code=204)

    for route, method, place, summary, operation in (
        (idempotent(create), "POST", path, f"Create one of your own {plural}", create_operation(plural)),
        (replace, "PUT", one, f"Put another row in the place of one of your own {plural}", replace_operation(plural)),
        (patch, "PATCH", one, f"Change some columns of one of your own {plural}", patch_operation(plural)),
        (delete, "DELETE", one, f"Delete one of your own {plural}", delete_operation(plural)),
    ):
        router.add_api_route(
            place,
            queued(route),
            methods=[method],
            status_code={"POST": 201, "DELETE": 204}.get(method, 200),
            dependencies=[takes_only() if method == "POST" else takes_only(OWNER)],
            operation_id=f"{route.__name__}{singular}",
            summary=summary,
            openapi_extra=operation,
        )


for _plural, _listing in LISTINGS.items():
    _add_routes(_plural, _listing)


@router.post(
    "/v1/models/import",
    status_code=201,
    dependencies=[takes_only(*NAMES)],
    operation_id="importModel",
    summary="Create one of your own models from its config.json",
    openapi_extra=import_operation(),
)
@queued
@idempotent
def import_config_json(request: Request, body: JsonObject) -> Response:
    """The whole body is the config.json, as it is."""
    slug, name = (one_of(request, given) for given in NAMES)
    try:
        imported = import_model(request.app.state.history, caller_of(request), body, slug, name)
    except Refused as refused:
        raise _of_query(refused) from None
    return _created("models", "slug", imported.row, imported)


class _TakenParameter(WrongParameter, Conflict):
    """A query parameter has a name that is taken."""


def _of_query(refused: Refused) -> Refused:
    """Report problems of names in the query as query problems, all others as problems of the config."""
    if any(problem.field not in NAMES for problem in refused.problems):
        return refused
    kind = _TakenParameter if isinstance(refused, Conflict) else WrongParameter
    return kind(*refused.problems)


CHOICES: dict[str, tuple[str, ...]] = {"dry_run": ("false", "true"), "on_error": ("refuse", "skip"), "dec": (".", ",")}
"""Parameters with their choices; the first is the default."""
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


async def _read_import(
    request: Request, content: Annotated[bytes, Depends(read_table_text)]
) -> tuple[ImportOptions, Holdings, ImportDraft | ImportReport]:
    """Parse a table before it enters the write queue: ten thousand rows take a second."""
    given = {name: choice_of(request, name, choices) for name, choices in CHOICES.items()}
    options = ImportOptions(
        mark="," if given["dec"] == "," else ".",
        skips=given["on_error"] == "skip",
        is_trial=given["dry_run"] == "true",
        caller=caller_of(request),
    )
    history: History = request.app.state.history
    await run_in_threadpool(history.refresh)
    before = history.holdings
    catalogue = await run_in_threadpool(before.view, options.caller.owner)
    run = read_in_process if is_long(content) else on_compute_threads
    return options, before, await run(request, draft_import, content, options, catalogue)


ReadImport = Annotated[tuple[ImportOptions, Holdings, ImportDraft | ImportReport], Depends(_read_import)]
"""Route argument: the import options, the rows at the time of parsing, and the parsed table."""


@router.post(
    "/v1/prices/import",
    operation_id="importPrices",
    summary="Own prices from a spreadsheet",
    dependencies=[takes_only(*CHOICES)],
    openapi_extra=OPERATION,
)
@queued
def import_table(request: Request, read: ReadImport) -> Response:
    """Import all rows or none, unless wrong ones are to be skipped; the CSV of the list can be imported back."""
    options, before, draft = read
    try:
        if isinstance(draft, ImportReport):
            refuse_wrong(draft, options)
            return json_answer(draft)
        return json_answer(write_import(request.app.state.history, before, draft, options))
    except ImportRefused as refused:
        return _refusal(request, refused.report)


def _refusal(request: Request, report: ImportReport) -> Response:
    """Problem document of a table with wrong rows: the first as errors, all of them in its report."""
    detail = f"{report.failed} of {report.rows} rows are wrong, so none was imported; mend them, or say on_error=skip"
    errors = [asdict(finding) for finding in report.findings]
    return problem_response(request.scope, "refused", detail, errors=errors, report=report)
