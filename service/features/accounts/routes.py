"""GET /v1/audit: who changed what and when, and which changes were refused; for admins."""

from fastapi import APIRouter, Request

from service.api.answers import add_list
from service.api.inputs import database_of
from service.api.openapi import requires
from service.api.requests import StrictRoute
from service.features.accounts.audit import COLUMNS, NEWEST_FIRST, listed_audit
from service.tabular.lists import Listed, ListTypes

router = APIRouter(tags=["audit"], route_class=StrictRoute)


def _listed(request: Request) -> Listed:
    request.app.state.denied_changes.write()  # so that the list has the newest one
    return listed_audit(database_of(request))


AUDIT_RECORDS = ListTypes(singular="AuditRecord", row_meaning="A requested change", columns=COLUMNS, sort=NEWEST_FIRST)
add_list(router, "audit", AUDIT_RECORDS, "Who changed what, the newest first", _listed, openapi_extra=requires("admin"))
