"""GET /v1/audit: who changed what and when, and which changes were refused; for admins."""

from fastapi import APIRouter, Request

from service.api.answers import Routes, add_list
from service.api.catalogues import database_of
from service.features.accounts.audit import COLUMNS, listed_audit
from service.tabular.lists import Listed

router = APIRouter(tags=["audit"])


def _held(request: Request) -> Listed:
    request.app.state.denied_changes.write()  # one that was refused just now is found, too
    return listed_audit(database_of(request))


add_list(
    router,
    Routes(
        plural="audit",
        singular="AuditRecord",
        meaning="Who changed what, the newest first",
        columns=COLUMNS,
        rows=_held,
    ),
)
