"""Lists and rows of the catalogue: /v1/models, /v1/gpus, /v1/prices and others, with custom rows."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api import requests
from service.api.access.authorization import CallerDep, caller_of
from service.api.answers import JSON, add_list, json_answer
from service.api.caching import IfMatch, idempotent, row_etag
from service.api.compute import on_compute_threads, queued
from service.api.errors import WrongParameter, problem_response
from service.api.inputs import view_of
from service.api.openapi import CSV_BODY, ETAG, MERGE_PATCH, examples, located, request_bodies
from service.catalogue import Catalogue, Snapshot
from service.errors import Conflict, Refused
from service.features.catalogue import custom_rows, lists, price_import
from service.features.catalogue.row_bodies import PRICE_ID, SINGULAR, RowColumns
from service.store.history import History
from service.tabular.lists import ListTypes, Record
from service.validation.question_parts import HfConfig

router = APIRouter(tags=["catalogue"], route_class=requests.StrictRoute)

OWNER = "owner"
OwnerText = Annotated[
    str | None,
    requests.query_text(
        OWNER,
        {"type": "string"},
        "Whose row is meant, where an admin asks and several owners have one of this name; your own where absent.",
    ),
]
CREATED = located(201, "Where the row is read.", ETag=ETAG)
NOW = "The row as it is now."


def visible_catalogue(request: Request) -> Catalogue:
    """Catalogue that the caller sees; for an admin who names one owner, that owner's."""
    owners, caller = request.query_params.getlist(OWNER), caller_of(request)
    history: History = request.app.state.history
    if caller.sees_all and len(owners) == 1 and owners[0] in history.snapshot.private:
        return history.view(owners[0])
    return view_of(request)


def _row(request: Request, listing: lists.Listing, name: str) -> Record:
    """A row that the caller sees; for an admin also the row of the only other owner with this key."""
    history: History = request.app.state.history
    view, key = visible_catalogue(request), (listing.row, name)
    if caller_of(request).sees_all and OWNER not in request.query_params and view.row(*key) is None:
        owners = [owner for owner, held in history.snapshot.private.items() if key in held.rows]
        view = history.view(owners[0]) if len(owners) == 1 else view
    return lists.read_row(listing, view, name)


def _created(plural: str, key: str, record: Record, whole: Any) -> Response:
    headers = {"Location": f"/v1/{plural}/{record[key]}", "ETag": row_etag(record)}
    return json_answer(whole, 201, headers)


def _changed(record: Record) -> Response:
    return json_answer(record, headers={"ETag": row_etag(record)})


def _add_routes(plural: str, listing: lists.Listing) -> None:
    singular, path, one = SINGULAR[plural], f"/v1/{plural}", f"/v1/{plural}/{{name:path}}"
    types = ListTypes(singular=singular, row_meaning=f"One of the {plural} of the catalogue", columns=listing.columns)
    add_list(
        router,
        plural,
        types,
        f"The {plural} of the catalogue",
        lambda request: lists.listed(listing, visible_catalogue(request)),
    )
    is_price = plural == "prices"
    names = [request_bodies(f"create{singular}")["example"]["value"].get("slug", PRICE_ID)]
    any_name = "Its id." if is_price else "Its slug or any other name, in any spelling."
    own_name = "Its id." if is_price else "Its slug, and no other name."

    @router.get(
        one,
        operation_id=f"get{singular}",
        summary=f"One of the {plural} of the catalogue",
        response_model=requests.answer(types.row),
    )
    async def read(
        request: Request,
        name: Annotated[str, Path(description=any_name, examples=names)],
        revision: requests.RowRevisionDep,
        owner: OwnerText,
    ) -> Response:
        if revision is None:
            return json_answer(await run_in_threadpool(_row, request, listing, name))
        history, caller = request.app.state.history, caller_of(request)
        return json_answer(await run_in_threadpool(lists.read_version, listing, history, caller, name, revision))

    @router.post(
        path,
        status_code=201,
        operation_id=f"create{singular}",
        summary=f"Create one of your own {plural}",
        response_model=requests.answer(types.row),
        response_description=NOW,
        responses=CREATED,
        openapi_extra=examples(f"create{singular}"),
    )
    @queued
    @idempotent
    def create(request: Request, body: requests.JsonBody[Annotated[Any, RowColumns(plural)]]) -> Response:
        record = custom_rows.create_row(request.app.state.history, listing, caller_of(request), body)
        return _created(plural, listing.key.name, record, record)

    async def change_of(
        caller: CallerDep,
        name: Annotated[str, Path(description=own_name, examples=names)],
        is_current: IfMatch,
        owner: OwnerText,
    ) -> custom_rows.RowChange:
        return custom_rows.RowChange(listing, name, is_current, caller, owner)

    @router.put(
        one,
        operation_id=f"replace{singular}",
        summary=f"Put another row in the place of one of your own {plural}",
        response_model=requests.answer(types.row),
        response_description=NOW,
        responses={200: {"headers": {"ETag": ETAG}}},
        openapi_extra=examples(f"create{singular}"),
    )
    @queued
    def replace(
        request: Request,
        change: Annotated[custom_rows.RowChange, Depends(change_of)],
        body: requests.JsonBody[Annotated[Any, RowColumns(plural)]],
    ) -> Response:
        return _changed(custom_rows.replace_row(request.app.state.history, change, body))

    @router.patch(
        one,
        operation_id=f"patch{singular}",
        summary=f"Change some columns of one of your own {plural}",
        description="An RFC 7396 merge patch of the row as GET shows it.",
        response_model=requests.answer(types.row),
        response_description=NOW,
        responses={200: {"headers": {"ETag": ETAG}}},
        openapi_extra=examples(f"patch{singular}", MERGE_PATCH, JSON),
    )
    @queued
    def patch(
        request: Request,
        change: Annotated[custom_rows.RowChange, Depends(change_of)],
        body: requests.PatchBody[Annotated[Any, RowColumns(plural, is_patch=True)]],
    ) -> Response:
        return _changed(custom_rows.patch_row(request.app.state.history, change, body))

    @router.delete(
        one,
        status_code=204,
        operation_id=f"delete{singular}",
        summary=f"Delete one of your own {plural}",
        response_description="The row is gone.",
    )
    @queued
    def delete(request: Request, change: Annotated[custom_rows.RowChange, Depends(change_of)]) -> Response:
        custom_rows.delete_row(request.app.state.history, change)
        return Response(status_code=204)


for _plural, _listing in lists.LISTINGS.items():
    _add_routes(_plural, _listing)


add_list(
    router,
    "catalogue/revisions",
    ListTypes(
        singular="Revision", row_meaning="One change of the catalogue", columns=lists.COLUMNS, sort=lists.NEWEST_FIRST
    ),
    "Every change of the catalogue, the newest first",
    lambda request: lists.listed_revisions(request.app.state.history, caller_of(request)),
)

NAMES = ("slug", "name")
"""Query parameters of an import beside the config."""
SlugText = Annotated[
    str | None,
    requests.query_text(
        "slug",
        {"type": "string"},
        "What the model is to be called; as its repository, else by type and size, where absent.",
    ),
]
NameText = Annotated[
    str | None, requests.query_text("name", {"type": "string"}, "Its name in print; its slug where absent.")
]


@router.post(
    "/v1/models/import",
    status_code=201,
    summary="Create one of your own models from its config.json",
    response_model=requests.answer(custom_rows.ImportedModelRow),
    response_description="The row, its parameters, and what was assumed.",
    responses=CREATED,
    openapi_extra=examples("importModel"),
)
@queued
@idempotent
def import_model(request: Request, body: requests.JsonBody[HfConfig], slug: SlugText, name: NameText) -> Response:
    """The whole body is the config.json, as it is."""
    try:
        imported = custom_rows.import_model(request.app.state.history, caller_of(request), body, slug, name)
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


DryRun = Annotated[str, requests.query_choice("dry_run", ("false", "true"), "Whether to tell only what would be done.")]
OnError = Annotated[
    str,
    requests.query_choice(
        "on_error",
        ("refuse", "skip"),
        "What is done about wrong rows: refuse the whole table, or skip them and import the others.",
    ),
]
Decimal = Annotated[str, requests.query_choice("dec", (".", ","), "Decimal mark of the numbers in the table.")]


async def _options(caller: CallerDep, dry_run: DryRun, on_error: OnError, dec: Decimal) -> price_import.ImportOptions:
    return price_import.ImportOptions(
        is_trial=dry_run == "true", skips=on_error == "skip", mark="," if dec == "," else ".", caller=caller
    )


async def _read_import(
    request: Request, content: requests.CsvBody, options: Annotated[price_import.ImportOptions, Depends(_options)]
) -> tuple[price_import.ImportOptions, Snapshot, price_import.ImportDraft | price_import.ImportReport]:
    """Parse a table before it enters the write queue: ten thousand rows take a second."""
    history: History = request.app.state.history
    await run_in_threadpool(history.refresh)
    before = history.snapshot
    catalogue = await run_in_threadpool(before.view, options.caller.owner)
    run = requests.read_in_process if requests.is_long(content) else on_compute_threads
    return options, before, await run(request, price_import.draft_import, content, options, catalogue)


ReadImport = Annotated[
    tuple[price_import.ImportOptions, Snapshot, price_import.ImportDraft | price_import.ImportReport],
    Depends(_read_import),
]
"""Route argument: the import options, the rows at the time of parsing, and the parsed table."""


@router.post(
    "/v1/prices/import",
    summary="Own prices from a spreadsheet",
    response_model=requests.answer(price_import.ImportReport),
    response_description="What was done, and what is wrong with rows that were skipped.",
    openapi_extra=examples("importPrices", CSV_BODY),
)
@queued
def import_prices(request: Request, read: ReadImport) -> Response:
    """Import all rows or none, unless wrong ones are to be skipped; the CSV of the list can be imported back."""
    options, before, draft = read
    try:
        if isinstance(draft, price_import.ImportReport):
            price_import.refuse_wrong(draft, options)
            return json_answer(draft)
        return json_answer(price_import.write_import(request.app.state.history, before, draft, options))
    except price_import.ImportRefused as refused:
        return _refusal(request, refused.report)


def _refusal(request: Request, report: price_import.ImportReport) -> Response:
    detail = f"{report.failed} of {report.rows} rows are wrong, so none was imported; mend them, or say on_error=skip"
    errors = [asdict(finding) for finding in report.findings]
    return problem_response(request.scope, "refused", detail, errors=errors, report=report)
