"""Answers as JSON and tables, content negotiation, and the routes of a list."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.compute import compute, on_compute_threads
from service.api.compute_process import Large
from service.api.openapi import CSV_BODY, MARKDOWN, PARQUET, TABLES, XLSX, table_response
from service.api.requests import Parameters, answer, whole_query
from service.tabular import lists
from service.validation.reading import to_bytes

JSON = "application/json"

MOST_ROWS_ON_A_THREAD = 100
"""Longest file that a thread writes, in some milliseconds."""

FORM_OF: Mapping[str, lists.TableForm] = {JSON: "json", CSV_BODY: "csv", XLSX: "xlsx", MARKDOWN: "md"}


def json_answer(value: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_bytes(value), status_code, headers, JSON)


FILE_ENDINGS = {XLSX: "xlsx", PARQUET: "parquet"}


def table_answer(content: bytes | str, media_type: str, name: str) -> Response:
    if media_type == CSV_BODY:
        return Response(content, media_type=f"{CSV_BODY}; charset=utf-8; header=present")
    ending = FILE_ENDINGS.get(media_type)
    saved_as = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'} if ending else None
    return Response(content, media_type=media_type, headers=saved_as)


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The offered media type with the highest weight in an Accept header.

    >>> preferred("text/csv, application/json;q=0.5", ("application/json", "text/csv"))
    'text/csv'
    >>> preferred("*/*", ("application/json", "text/csv"))
    'application/json'
    """
    ranges = [item.partition(";") for item in accept.lower().split(",")]
    weights = {media.strip(): _weight(parameters) for media, _, parameters in ranges}
    return max(offered, key=lambda media: next((weights[name] for name in _ranges(media) if name in weights), 0.0))


def _ranges(media: str) -> tuple[str, ...]:
    """Media ranges that match a media type, the most specific first."""
    return media, f"{media.partition('/')[0]}/*", "*/*"


def _weight(parameters: str) -> float:
    """The q of a media range; 1 without a valid one."""
    weights = [text.strip().removeprefix("q=") for text in parameters.split(";") if text.strip().startswith("q=")]
    try:
        return float(weights[0]) if weights else 1.0
    except ValueError:
        return 1.0


TABLE_FORMS: dict[str, tuple[str, Callable[[lists.Table], Any], str]] = {
    "csv": (CSV_BODY, lists.csv_of, "as CSV, all of them"),
    "xlsx": (XLSX, lists.workbook_of, "as an Excel workbook, all of them"),
    "parquet": (PARQUET, lists.parquet_of, "as Parquet, all of them"),
}
"""Tables of a list by the ending of their path: media type, writer, and words of the summary."""


def add_list(
    router: APIRouter,
    plural: str,
    types: lists.ListTypes,
    meaning: str,
    rows: Callable[[Request], lists.Listed],
    *,
    endings: Sequence[str] = ("csv", "xlsx"),
    **operation: Any,
) -> None:
    """Add the routes of a list under /v1: JSON page by page, and the whole list as a table of each ending."""
    name = plural.rpartition("/")[2]
    parameters, query_dep = Depends(whole_query(types.parameters)), Depends(whole_query(types.query))

    async def page(request: Request, query: Annotated[Parameters, parameters]) -> Response:
        if "parquet" in endings and preferred(request.headers.get("accept", ""), (JSON, PARQUET)) == PARQUET:
            return await file(request, query, "parquet")
        return json_answer(await run_in_threadpool(lambda: lists.page_of(rows(request), query)))

    async def file(request: Request, query: Parameters, ending: str) -> Response:
        media_type, write, _ = TABLE_FORMS[ending]
        selected = await on_compute_threads(request, lambda: lists.table_of(rows(request), query))
        if len(selected.rows) <= MOST_ROWS_ON_A_THREAD:
            content = await on_compute_threads(request, write, selected)
        else:
            content = await compute(request, write, Large(selected))
        return table_answer(content, media_type, name)

    def table(ending: str) -> Callable[..., Awaitable[Response]]:
        async def whole(request: Request, query: Annotated[Parameters, query_dep]) -> Response:
            return await file(request, query, ending)

        return whole

    router.add_api_route(
        f"/v1/{plural}",
        page,
        operation_id=f"list{types.singular}s",
        summary=f"{meaning}, page by page",
        description=f"{lists.FILTERS} More rows than one page holds are asked for by next_cursor.",
        response_model=answer(types.page),
        **operation,
    )
    for ending in endings:
        media_type, _, words = TABLE_FORMS[ending]
        router.add_api_route(
            f"/v1/{plural}.{ending}",
            table(ending),
            operation_id=f"list{types.singular}sAs{ending.capitalize()}",
            summary=f"{meaning}, {words}",
            description=lists.FILTERS,
            response_class=Response,
            responses=table_response(media_type, "Every row that passes the filters."),
            **operation,
        )


COMPUTED_FORMS = {
    "": ("", ""),
    ".csv": (CSV_BODY, ", as CSV"),
    ".xlsx": (XLSX, ", as a workbook"),
    ".md": (MARKDOWN, ", as Markdown"),
}
"""Computed tables by the ending of their path: media type (empty: the one that the caller accepts), summary."""

Endpoint = Callable[..., Awaitable[Response]]


def computed_table(
    router: APIRouter,
    path: str,
    kind: type,
    rows: str,
    *,
    endings: Sequence[str] = ("", ".csv", ".xlsx"),
    **operation: Any,
) -> Callable[[Endpoint], Endpoint]:
    """Add the routes of a table that is computed: what the caller accepts, CSV, a workbook, and Markdown if asked."""
    both = {media: {"schema": TABLES[media]} for media in (CSV_BODY, XLSX)}

    def add(endpoint: Endpoint) -> Endpoint:
        for ending in endings:
            media_type, words = COMPUTED_FORMS[ending]
            answers: dict[str, Any] = (
                {"response_class": Response, "responses": table_response(media_type, rows)}
                if media_type
                else {"response_model": answer(kind), "responses": {200: {"description": rows, "content": both}}}
            )
            name, summary = f"{endpoint.__name__}{ending.replace('.', '_as_')}", f"{operation['summary']}{words}"
            names = {"name": name, "summary": summary}
            router.add_api_route(f"{path}{ending}", endpoint, **operation | names | answers)
        return endpoint

    return add


async def written_table(request: Request, name: str, write: Callable[..., Any], *arguments: Any) -> Response:
    """A table that a compute process writes, in the form of the route or the one that the caller accepts."""
    media_type, _ = COMPUTED_FORMS[PurePath(request.scope["route"].path).suffix]
    chosen = media_type or preferred(request.headers.get("accept", ""), (JSON, CSV_BODY, XLSX))
    return table_answer(await compute(request, write, *arguments, FORM_OF[chosen]), chosen, name)
