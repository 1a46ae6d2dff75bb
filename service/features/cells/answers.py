"""Text answers for spreadsheets: an ETag that is known before the answer, and errors that a cell can show."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from pydantic_core import to_json

from service import __version__
from service.api.access.authorization import AccessDenied
from service.api.caching import is_head
from service.api.catalogues import view_of
from service.api.errors import WrongParameter, on_api_error
from service.api.openapi import CSV_BODY, parameter_ref, query_parameter
from service.api.queries import REV
from service.errors import UnknownRevision, Unreachable
from service.estimator import FORMULAS_VERSION
from service.features.cells import cells, tables
from service.validation.flat import flat_fields
from service.validation.serialization import digest_of

TEXT = "text/plain"

NO_CATALOGUE = (UnknownRevision, Unreachable, WrongParameter)
"""Why there may be no catalogue to answer under."""

XML = "application/xml"


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """How an operation that sheets ask shows an error where they want no problem document."""

    media_type: str
    told: Callable[[str], str]
    """The body that holds a text."""
    blank: str
    """The body where the sheet wants none of it."""

    def shown(self, text: str, on_error: cells.OnError) -> str:
        """The body that a sheet asks for."""
        return self.told(text) if on_error == "text" else self.blank


ERROR_FORMS = {
    "getCell": ErrorForm(TEXT, str, ""),
    "getCellTable": ErrorForm(CSV_BODY, tables.error_csv, ""),
    "getCellXml": ErrorForm(XML, tables.error_xml, "<estimate/>"),
}
"""By operation id; getCellReason always answers text."""

OPTIONS = {
    "num": "How what is not a whole number is written: mantissa and exponent, decimal point, or decimal comma.",
    "unit": "Unit of the number; the metric's own where absent.",
    "dec": "Decimal mark of the numbers in this query.",
    "on_error": "What an error becomes: a problem document, a text in the cell (#ERR code: why), or an empty cell.",
}


def sheet_parameters(*own: dict[str, Any], without: str = "") -> list[dict[str, Any]]:
    """The parameters of a path that sheets ask: the flat question, and how the sheet wants its numbers."""
    options = {name: meaning for name, meaning in OPTIONS.items() if name != without}
    return [
        *own,
        *map(parameter_ref, (REV, *flat_fields())),
        *(query_parameter(name, meaning, {"enum": list(cells.CHOICES[name])}) for name, meaning in options.items()),
        query_parameter(cells.REFRESH, "Changes nothing but the URL, so that a sheet asks anew.", {"type": "string"}),
    ]


def sheet_text(
    request: Request, text: str, revision: str, said: Mapping[str, str] | None = None, media_type: str = TEXT
) -> Response:
    """What a sheet reads, under a catalogue.

    What decides the text decides its ETag: the path, the query, and the versions of what computes it. So that is known
    before the answer, and HEAD tells the same one for nothing.
    """
    inputs = [request.url.path, request.query_params.multi_items(), revision, FORMULAS_VERSION, __version__]
    headers = {"Cache-Control": "private, max-age=300", "ETag": f'"{digest_of(to_json(inputs))}"'}
    response = PlainTextResponse(text, headers=headers | dict(said or {}), media_type=media_type)
    if is_head(request):
        del response.headers["content-length"]
    return response


def passing_text(text: str, media_type: str = TEXT) -> Response:
    """Why there is no catalogue to answer under: it may be there in a moment, so nobody keeps the text."""
    return PlainTextResponse(text, headers={"Cache-Control": "no-store"}, media_type=media_type)


def head_answer(request: Request, media_type: str = TEXT) -> Response:
    """What GET would say, without its body and without computing it."""
    return sheet_text(request, "", request.query_params.get(REV) or view_of(request).revision, media_type=media_type)


def on_not_allowed(request: Request, error: AccessDenied) -> Response:
    """Problem document of a refusal, or its text where a cell asks for that."""
    operation_id, text = request.scope["route"].operation_id, f"{error.code}: {error.detail}"
    if operation_id == "getCellReason":
        return passing_text(text)
    form = ERROR_FORMS.get(operation_id)
    wanted = (
        "problem" if form is None else cells.on_error_of(cells.split_options(request.query_params.multi_items())[0])
    )
    if form is None or wanted == "problem":
        return on_api_error(request, error)
    return passing_text(form.shown(f"#ERR {text}", wanted), form.media_type)
