"""GET /v1/cell/{metric}: one number as plain text, for WEBSERVICE, IMPORTDATA and Power Query."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic_core import to_json

from service import __version__
from service.api.access.authorization import AccessDenied
from service.api.caching import is_head
from service.api.compute import compute
from service.api.errors import WrongParameter, on_api_error
from service.api.inputs import REV, catalogue_of, view_of
from service.api.openapi import CSV_BODY, SHEET_KEY, TEXT_BODY, requires
from service.api.requests import Parameters, RevisionQuery, StrictRoute, query, whole_query
from service.api.streams import finish
from service.catalogue import Catalogue
from service.errors import NotFound, Refused, UnknownRevision, Unreachable
from service.estimator import FORMULAS_VERSION
from service.estimator.answer import Verdict
from service.features.cells import cells, tables
from service.validation.flat import FlatQuestion
from service.validation.open_fields import NOT_PLANNED
from service.validation.reading import digest_of
from service.validation.sentences.grammar import LONGEST

router = APIRouter(tags=["cells"], route_class=StrictRoute)

XML = "application/xml"

NO_CATALOGUE = (UnknownRevision, Unreachable, WrongParameter)
"""Errors of a request whose catalogue cannot be read."""

FEW_ROWS = 2
"""Most answers that the API process computes itself; more go to a compute process."""


@dataclass(frozen=True, slots=True)
class SheetForm:
    """Media type of an operation's text, and the form of its errors where a sheet asks for text."""

    media_type: str = TEXT_BODY
    render: Callable[[str], str] = str
    """Function from the text of an error to the body."""
    blank: str = ""
    """Body of an error where the cell shall be empty."""

    def shown(self, text: str, on_error: cells.OnError) -> str:
        """Body of an error as requested."""
        return self.render(text) if on_error == "text" else self.blank


FORMS = {
    "getCell": SheetForm(),
    "getCellTable": SheetForm(CSV_BODY, tables.error_csv),
    "getCellXml": SheetForm(XML, tables.error_xml, "<estimate/>"),
}


def _choice(name: str, description: str) -> Any:
    return query({"enum": list(cells.CHOICES[name])}, description)


NumQuery = Annotated[
    Any,
    *_choice(
        "num", "How what is not a whole number is written: mantissa and exponent, decimal point, or decimal comma."
    ),
]
UnitQuery = Annotated[Any, *_choice("unit", "Unit of the number; the metric's own where absent.")]
DecQuery = Annotated[Any, *_choice("dec", "Decimal mark of the numbers in this query.")]
OnErrorQuery = Annotated[
    Any,
    *_choice(
        "on_error", "What an error becomes: a problem document, a text in the cell (#ERR code: why), or an empty cell."
    ),
]
SentenceQuery = Annotated[
    Any,
    *query(
        {"type": "string", "maxLength": LONGEST},
        "One sentence in place of the fields of a question, as GET /v1/ask takes it; an = before it is left aside.",
        cells.SENTENCE,
    ),
]
RefreshQuery = Annotated[Any, *query({"type": "string"}, "Changes nothing but the URL, so that a sheet asks anew.")]
FlatQuery = Annotated[Parameters, Depends(whole_query(FlatQuestion))]


async def _sheet_query(  # noqa: PLR0913 - declares the parameters; the readers of cells and tables validate them
    request: Request,
    question: FlatQuery,
    *,
    rev: RevisionQuery = None,
    sentence: SentenceQuery = None,
    num: NumQuery = None,
    dec: DecQuery = None,
    on_error: OnErrorQuery = None,
    r: RefreshQuery = None,
) -> Parameters:
    return request.query_params.multi_items()


async def _cell_query(sheet: Annotated[Parameters, Depends(_sheet_query)], unit: UnitQuery = None) -> Parameters:
    return sheet


CellQuery = Annotated[Parameters, Depends(_cell_query)]
TableQuery = Annotated[Parameters, Depends(_sheet_query)]
MetricQuery = Annotated[
    Any,
    *query(
        {"type": "string"},
        "The metric of the cell, whose error is then explained too; where absent, ok speaks of the question alone.",
    ),
]
MetricsQuery = Annotated[
    Any,
    *query(
        {"type": "string"}, "Names of the numbers, as cells take them, with ; between them; the main ones where absent."
    ),
]


def _text(description: str, media_type: str = TEXT_BODY, **more: Any) -> dict[int | str, Any]:
    return {200: {"description": description, "content": {media_type: {"schema": {"type": "string"}}}, **more}}


HEADERS = {
    "X-Unit": {"description": "Unit of the number.", "schema": {"type": "string"}},
    "X-Verdict": {
        "description": "Whether the job fits; the number is that of the job as asked, even where it does not.",
        "schema": {"enum": list(get_args(Verdict))},
    },
}


@router.get(
    "/v1/cell/why",
    summary="Why a cell shows an error",
    response_class=PlainTextResponse,
    responses=_text("ok, or one line for each thing to mend."),
    openapi_extra=requires("sheet", SHEET_KEY),
)
async def get_cell_reason(request: Request, parameters: CellQuery, metric: MetricQuery = None) -> Response:
    """Explain a cell, given its query and metric; always text."""
    if is_head(request):
        return _head(request)
    try:
        catalogue = await catalogue_of(request)
    except NO_CATALOGUE as error:
        return _uncached(cells.reason(error))
    text = cells.why(parameters, catalogue)
    if text.startswith(NOT_PLANNED.code):
        text = await compute(request, cells.planned_why, parameters, catalogue)
    return _sheet(request, text, catalogue.revision)


@router.get(
    "/v1/cell/table.csv",
    summary="Numbers of an answer as CSV, or of several: a field with several values (tp=1;2;4) is swept",
    response_class=Response,
    responses=_text("The numbers.", CSV_BODY),
    openapi_extra=requires("sheet", SHEET_KEY),
)
async def get_cell_table(request: Request, parameters: TableQuery, metrics: MetricsQuery = None) -> Response:
    """Each number with its unit, a prediction with its ends; one that is not known with the reason."""

    async def rows(catalogue: Catalogue) -> tuple[str, dict[str, str]]:
        if tables.rows_of(parameters) <= FEW_ROWS and not cells.is_sentence(parameters):
            return await finish(request, tables.table_csv(parameters, catalogue)), {}
        return await compute(request, tables.table_csv, parameters, catalogue), {}

    return await _answered(request, parameters, rows)


@router.get(
    "/v1/cell/estimate.xml",
    summary="Numbers of an answer as XML without a namespace, for FILTERXML",
    response_class=Response,
    responses=_text("The numbers.", XML),
    openapi_extra=requires("sheet", SHEET_KEY),
)
async def get_cell_xml(request: Request, parameters: TableQuery, metrics: MetricsQuery = None) -> Response:
    """Each number with its unit, a prediction with its ends; one that is not known with the reason."""

    async def elements(catalogue: Catalogue) -> tuple[str, dict[str, str]]:
        if cells.is_sentence(parameters):  # whose layout is planned
            return await compute(request, tables.estimate_xml, parameters, catalogue), {}
        return tables.estimate_xml(parameters, catalogue), {}

    return await _answered(request, parameters, elements)


@router.get(
    "/v1/cell/{metric}",
    summary="One number of an answer",
    response_class=PlainTextResponse,
    responses=_text("The number alone.", headers=HEADERS),
    openapi_extra=requires("sheet", SHEET_KEY),
)
async def get_cell(
    request: Request,
    parameters: CellQuery,
    metric: Annotated[
        str,
        Path(description="Name of the number, or as much of its path as tells it apart.", examples=["step_seconds"]),
    ],
) -> Response:
    """Any number of an answer by its name, or by as much of its path as tells it apart."""

    async def number(catalogue: Catalogue) -> tuple[str, dict[str, str]]:
        options, question = cells.split_options(parameters)
        arguments = metric, question, cells.read_options(options), catalogue
        try:
            result = cells.cell(*arguments)
        except Refused as refused:
            if NOT_PLANNED not in refused.problems:
                raise
            result = await compute(request, cells.planned_cell, *arguments)
        return result.text, {"X-Unit": result.unit, "X-Verdict": result.verdict}

    return await _answered(request, parameters, number)


async def _answered(
    request: Request, parameters: Parameters, answer: Callable[[Catalogue], Awaitable[tuple[str, dict[str, str]]]]
) -> Response:
    form = FORMS[request.scope["route"].unique_id]
    if is_head(request):
        return _head(request, form.media_type)
    on_error = cells.on_error_of(parameters)
    try:
        catalogue = await catalogue_of(request)
    except NO_CATALOGUE as error:
        if on_error == "problem":
            raise
        return _uncached(form.shown(cells.error_text(error), on_error), form.media_type)
    try:
        text, headers = await answer(catalogue)
    except (Refused, NotFound) as error:
        if on_error == "problem":
            raise
        text, headers = form.shown(cells.error_text(error), on_error), {}
    return _sheet(request, text, catalogue.revision, headers, form.media_type)


def _sheet(
    request: Request, text: str, revision: str, headers: Mapping[str, str] | None = None, media_type: str = TEXT_BODY
) -> Response:
    """Text whose ETag follows from the path, the query and the versions, so that HEAD need not compute the text."""
    inputs = [request.url.path, request.query_params.multi_items(), revision, FORMULAS_VERSION, __version__]
    cached = {"Cache-Control": "private, max-age=300", "ETag": f'"{digest_of(to_json(inputs))}"'}
    response = PlainTextResponse(text, headers=cached | dict(headers or {}), media_type=media_type)
    if is_head(request):
        del response.headers["content-length"]
    return response


def _head(request: Request, media_type: str = TEXT_BODY) -> Response:
    return _sheet(request, "", request.query_params.get(REV) or view_of(request).revision, media_type=media_type)


def _uncached(text: str, media_type: str = TEXT_BODY) -> Response:
    """Text that is not cached, such as an error for a catalogue that may be available soon."""
    return PlainTextResponse(text, headers={"Cache-Control": "no-store"}, media_type=media_type)


def on_not_allowed(request: Request, error: AccessDenied) -> Response:
    """Problem document of a refused caller, or its text if a cell asks for text."""
    operation_id, text = request.scope["route"].unique_id, f"{error.code}: {error.detail}"
    if operation_id == "getCellReason":
        return _uncached(text)
    form, on_error = FORMS.get(operation_id), cells.on_error_of(request.query_params.multi_items())
    if form is None or on_error == "problem":
        return on_api_error(request, error)
    return _uncached(form.shown(f"#ERR {text}", on_error), form.media_type)
