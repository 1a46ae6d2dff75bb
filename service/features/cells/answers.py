"""Text answers for spreadsheets: an ETag that is known before the answer, and errors for cells."""

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
"""Reasons for a missing catalogue."""

XML = "application/xml"


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """Form of errors of an operation for sheets that want no problem document."""

    media_type: str
    render: Callable[[str], str]
    """Function from a text to the body."""
    blank: str
    """Body without a text."""

    def shown(self, text: str, on_error: cells.OnError) -> str:
        """Body of an error as requested."""
        return self.render(text) if on_error == "text" else self.blank


ERROR_FORMS = {
    "getCell": ErrorForm(TEXT, str, ""),
    "getCellTable": ErrorForm(CSV_BODY, tables.error_csv, ""),
    "getCellXml": ErrorForm(XML, tables.error_xml, "<estimate/>"),
}
"""Forms by operation id; getCellReason always answers text."""

OPTIONS = {
    "num": "How what is not a whole number is written: mantissa and exponent, decimal point, or decimal comma.",
    "unit": "Unit of the number; the metric's own where absent.",
    "dec": "Decimal mark of the numbers in this query.",
    "on_error": "What an error becomes: a problem document, a text in the cell (#ERR code: why), or an empty cell.",
}


def sheet_parameters(*own: dict[str, Any], without: str = "") -> list[dict[str, Any]]:
    """Parameters for sheets: the flat question and the options of a cell."""
    options = {name: meaning for name, meaning in OPTIONS.items() if name != without}
    return [
        *own,
        *map(parameter_ref, (REV, *flat_fields())),
        *(query_parameter(name, meaning, {"enum": list(cells.CHOICES[name])}) for name, meaning in options.items()),
        query_parameter(cells.REFRESH, "Changes nothing but the URL, so that a sheet asks anew.", {"type": "string"}),
    ]


def sheet_text(
    request: Request, text: str, revision: str, extra_headers: Mapping[str, str] | None = None, media_type: str = TEXT
) -> Response:
    """Text answer under a catalogue.

    The path, the query and the versions of the computation determine the text, and so its ETag. It is known before the
    answer, and HEAD returns the same one without computing anything.
    """
    inputs = [request.url.path, request.query_params.multi_items(), revision, FORMULAS_VERSION, __version__]
    headers = {"Cache-Control": "private, max-age=300", "ETag": f'"{digest_of(to_json(inputs))}"'}
    response = PlainTextResponse(text, headers=headers | dict(extra_headers or {}), media_type=media_type)
    if is_head(request):
        del response.headers["content-length"]
    return response


def uncached_text(text: str, media_type: str = TEXT) -> Response:
    """Text for a missing catalogue, not cached because it may be available soon."""
    return PlainTextResponse(text, headers={"Cache-Control": "no-store"}, media_type=media_type)


def head_answer(request: Request, media_type: str = TEXT) -> Response:
    """Headers of GET, without computing its body."""
    return sheet_text(request, "", request.query_params.get(REV) or view_of(request).revision, media_type=media_type)


def on_not_allowed(request: Request, error: AccessDenied) -> Response:
    """Problem document of a refusal, or its text if a cell asks for that."""
    operation_id, text = request.scope["route"].operation_id, f"{error.code}: {error.detail}"
    if operation_id == "getCellReason":
        return uncached_text(text)
    form = ERROR_FORMS.get(operation_id)
    on_error = (
        "problem" if form is None else cells.on_error_of(cells.split_options(request.query_params.multi_items())[0])
    )
    if form is None or on_error == "problem":
        return on_api_error(request, error)
    return uncached_text(form.shown(f"#ERR {text}", on_error), form.media_type)
