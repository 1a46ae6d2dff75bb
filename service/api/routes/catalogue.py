"""GET /v1/models, /v1/gpus, /v1/clusters, /v1/prices, /v1/rate-cards: lists with filters and pages, rows, and CSV.

The catalogue is in memory, so these routes are asynchronous and answer without the database; only an older version of
a row is read from there, on another thread.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.answers import json_answer
from service.api.catalogue_schemas import SINGULAR, list_operation, row_operation, table_operation
from service.api.queries import one_of, takes_only
from service.workflows.catalogue_lists import LISTINGS, Listing, list_csv, list_rows, read_row
from service.workflows.row_versions import REVISION, read_version

router = APIRouter(tags=["catalogue"])

CSV = "text/csv; charset=utf-8; header=present"


def _add_routes(plural: str, listing: Listing) -> None:
    async def page(request: Request) -> Response:
        return json_answer(list_rows(listing, request.app.state.catalogue, request.query_params.multi_items()))

    async def table(request: Request) -> Response:
        text = list_csv(listing, request.app.state.catalogue, request.query_params.multi_items())
        return Response(text, media_type=CSV)

    async def row(request: Request, name: str) -> Response:
        revision = one_of(request, REVISION)
        if revision is None:
            return json_answer(read_row(listing, request.app.state.catalogue, name))
        return json_answer(await run_in_threadpool(read_version, listing, request.app.state.history, name, revision))

    singular = SINGULAR[plural]
    router.add_api_route(
        f"/v1/{plural}",
        page,
        operation_id=f"list{singular}s",
        summary=f"The {plural} of the catalogue, page by page",
        openapi_extra=list_operation(plural),
    )
    router.add_api_route(
        f"/v1/{plural}.csv",
        table,
        operation_id=f"list{singular}sAsCsv",
        summary=f"The {plural} of the catalogue as CSV, all of them",
        openapi_extra=table_operation(plural),
    )
    router.add_api_route(
        f"/v1/{plural}/{{name:path}}",
        row,
        dependencies=[takes_only(REVISION)],
        operation_id=f"get{singular}",
        summary=f"One of the {plural} of the catalogue",
        openapi_extra=row_operation(plural),
    )


for _plural, _listing in LISTINGS.items():
    _add_routes(_plural, _listing)
