"""GET /v1/models, /v1/gpus, /v1/prices and the other lists of the catalogue: in every form, and single rows.

The catalogue is in memory, so these routes answer without the database; only an older version of a row is read there.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import SINGULAR, caller_of
from service.api.answers import add_list, json_answer
from service.api.catalogues import view_of
from service.api.queries import one_of, takes_only
from service.catalogue import Catalogue
from service.features.catalogue.list_openapi import OWNER, row_operation
from service.features.catalogue.lists import (
    COLUMNS,
    LISTINGS,
    NEWEST_FIRST,
    Listing,
    listed,
    listed_revisions,
    read_row,
)
from service.features.catalogue.versions import REVISION, read_version
from service.store.history import History
from service.tabular.contract import ListTypes
from service.tabular.lists import Record

router = APIRouter(tags=["catalogue"])


def visible_catalogue(request: Request) -> Catalogue:
    """Catalogue that the caller sees; for an admin who names one owner, that owner's."""
    owners, caller = request.query_params.getlist(OWNER), caller_of(request)
    history: History = request.app.state.history
    if caller.sees_all and len(owners) == 1 and owners[0] in history.holdings.private:
        return history.view(owners[0])
    return view_of(request)


def _row(request: Request, listing: Listing, name: str) -> Record:
    """A row that the caller sees; for an admin also the row of the only other owner with this key."""
    history: History = request.app.state.history
    view, key = visible_catalogue(request), (listing.row, name)
    if caller_of(request).sees_all and OWNER not in request.query_params and view.row(*key) is None:
        owners = [owner for owner, held in history.holdings.private.items() if key in held.rows]
        view = history.view(owners[0]) if len(owners) == 1 else view
    return read_row(listing, view, name)


def _add_routes(plural: str, listing: Listing) -> None:
    types = ListTypes(
        singular=SINGULAR[plural], row_meaning=f"One of the {plural} of the catalogue", columns=listing.columns
    )
    add_list(
        router,
        plural,
        types,
        f"The {plural} of the catalogue",
        lambda request: listed(listing, visible_catalogue(request)),
    )

    async def row(request: Request, name: str) -> Response:
        revision = one_of(request, REVISION)
        if revision is None:
            return json_answer(await run_in_threadpool(_row, request, listing, name))
        history, caller = request.app.state.history, caller_of(request)
        return json_answer(await run_in_threadpool(read_version, listing, history, caller, name, revision))

    router.add_api_route(
        f"/v1/{plural}/{{name:path}}",
        row,
        dependencies=[takes_only(REVISION, OWNER)],
        operation_id=f"get{SINGULAR[plural]}",
        summary=f"One of the {plural} of the catalogue",
        openapi_extra=row_operation(plural),
    )


for _plural, _listing in LISTINGS.items():
    _add_routes(_plural, _listing)


add_list(
    router,
    "catalogue/revisions",
    ListTypes(singular="Revision", row_meaning="One change of the catalogue", columns=COLUMNS, sort=NEWEST_FIRST),
    "Every change of the catalogue, the newest first",
    lambda request: listed_revisions(request.app.state.history, caller_of(request)),
)
