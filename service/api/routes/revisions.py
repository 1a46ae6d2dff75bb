"""GET /v1/catalogue/revisions: the catalogues that there were, for `rev` of the estimating routes; the newest first."""

from fastapi import APIRouter

from service.api.callers import caller_of
from service.api.lists import Routes, add_list
from service.workflows.revisions import COLUMNS, listed_revisions

router = APIRouter(tags=["catalogue"])

add_list(
    router,
    Routes(
        plural="catalogue/revisions",
        singular="Revision",
        meaning="Every change of the catalogue, the newest first",
        columns=COLUMNS,
        held=lambda request: listed_revisions(request.app.state.history, caller_of(request)),
    ),
)
