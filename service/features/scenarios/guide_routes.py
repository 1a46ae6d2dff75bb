"""Examples of the guide: budget workbooks, a Google Sheets script, a Power Query, a TypeScript client.

The examples name the address under which they are read, so they work where they come from as they are.
"""

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from service.api.openapi import XLSX
from service.api.pages import GUIDE
from service.api.queries import address_of, takes_only, with_address
from service.features.scenarios.budgets import budget_sheets, example_budget
from service.tabular import sheets as open_document
from service.tabular.sheets import Sheet, excel_file

SNIPPETS = ("traincost.gs", "traincost.pq", "clients.ts")

router = APIRouter(include_in_schema=False, dependencies=[takes_only()])


def _saved_as(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _add_budget(name: str, media_type: str, written: Callable[[Sequence[Sheet]], bytes]) -> None:
    def budget(request: Request) -> Response:
        sheets = budget_sheets(example_budget(address_of(request), request.app.state.catalogue))
        return Response(written(sheets), media_type=media_type, headers=_saved_as(name))

    router.add_api_route(f"/guide/{name}", budget)


def _add_snippet(name: str) -> None:
    def snippet(request: Request) -> Response:
        text = (GUIDE / name).read_text(encoding="utf-8")
        return PlainTextResponse(with_address(text, request), headers=_saved_as(name))

    router.add_api_route(f"/guide/{name}", snippet)


_add_budget("budget.xlsx", XLSX, excel_file)
_add_budget("budget.ods", open_document.MEDIA_TYPE, open_document.open_document_file)
for _name in SNIPPETS:
    _add_snippet(_name)
