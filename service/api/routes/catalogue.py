"""GET /v1/models, /v1/gpus, /v1/prices and the other lists of the catalogue: in every form, and single rows.

The catalogue is in memory, so these routes answer without the database; only an older version of a row is read there.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.answers import json_answer
from service.api.catalogue_schemas import SINGULAR, row_operation
from service.api.lists import Routes, add_list
from service.api.queries import one_of, takes_only
from service.workflows.catalogue_lists import LISTINGS, Listing, listed, read_row
from service.workflows.row_versions import REVISION, read_version

router = APIRouter(tags=["catalogue"])


def _add_routes(plural: str, listing: Listing) -> None:
    add_list(
        router,
        Routes(
            plural=plural,
            singular=SINGULAR[plural],
            meaning=f"The {plural} of the catalogue",
            columns=listing.columns,
            held=lambda request: listed(listing, request.app.state.catalogue),
        ),
    )

    async def row(request: Request, name: str) -> Response:
        revision = one_of(request, REVISION)
        if revision is None:
            return json_answer(read_row(listing, request.app.state.catalogue, name))
        return json_answer(await run_in_threadpool(read_version, listing, request.app.state.history, name, revision))

    router.add_api_route(
        f"/v1/{plural}/{{name:path}}",
        row,
        dependencies=[takes_only(REVISION)],
        operation_id=f"get{SINGULAR[plural]}",
        summary=f"One of the {plural} of the catalogue",
        openapi_extra=row_operation(plural),
    )


for _plural, _listing in LISTINGS.items():
    _add_routes(_plural, _listing)
