"""What did the caller send? A body that calls itself what the route takes, read as what it calls itself."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from service.api.json_text import NOT_TEXT, parse, parse_unjudged
from service.api.problems import ApiError
from service.errors import Problem, Refused
from service.text_bounds import is_text

JSON_BODY = "application/json"
MERGE_PATCH = "application/merge-patch+json"
CSV_BODY = "text/csv"
TEXT_BODY = "text/plain"
PARAMETERS = {
    JSON_BODY: {"", "charset=utf-8"},
    CSV_BODY: {"", "charset=utf-8", "header=present"},
    TEXT_BODY: {"", "charset=utf-8"},
}
"""Parameters that a media type may have."""

NOT_UTF_8 = "the body is no text in UTF-8, or holds a NUL"


async def read_body(request: Request, media_types: Sequence[str] = (JSON_BODY,)) -> Mapping[str, Any]:
    """The JSON object in a request's body.

    Args:
        request: the request; its body is already bounded
        media_types: what the body may call itself

    Returns:
        the object

    Raises:
        ApiError: the media type is not JSON, or the body is not JSON
        Refused: a value is none that a field could hold
    """
    refuse_media_type(request, media_types)
    return as_object(parse(await request.body()))


async def read_large_body(request: Request) -> Mapping[str, Any]:
    """The JSON object in a request's long body, parsed on another thread; its values are not judged yet.

    Args:
        request: the request; its body is already bounded

    Returns:
        the object, with Refusable in the place of what no field could hold

    Raises:
        ApiError: the media type is not JSON, or the body is not JSON
        Refused: it is too long or too deep to be looked at
    """
    refuse_media_type(request, (JSON_BODY,))
    return as_object(await run_in_threadpool(parse_unjudged, await request.body()))


def as_object(value: object) -> Mapping[str, Any]:
    """A parsed body, which has to be an object.

    Args:
        value: what was parsed

    Returns:
        the object

    Raises:
        ApiError: it is none
    """
    if not isinstance(value, dict):
        raise ApiError("not_json", "send a JSON object")
    return value


async def _object_of(request: Request) -> Mapping[str, Any]:
    return await read_body(request)


async def _patch_of(request: Request) -> Mapping[str, Any]:
    return await read_body(request, (JSON_BODY, MERGE_PATCH))


async def read_long_body(request: Request) -> Mapping[str, Any]:
    """The JSON object in a request's long body, parsed and judged on another thread.

    Args:
        request: the request; its body is already bounded

    Returns:
        the object

    Raises:
        ApiError: the media type is not JSON, or the body is not JSON
        Refused: a value is none that a field could hold
    """
    refuse_media_type(request, (JSON_BODY,))
    return as_object(await run_in_threadpool(parse, await request.body()))


JsonObject = Annotated[Mapping[str, Any], Depends(_object_of)]
"""Argument of a route that runs on a thread: the JSON object in the body."""
LongObject = Annotated[Mapping[str, Any], Depends(read_long_body)]
"""Argument of a route: the JSON object in a body that may take long to read, which nobody else waits for."""
MergePatch = Annotated[Mapping[str, Any], Depends(_patch_of)]
"""Argument of a route that runs on a thread: the merge patch in the body."""


async def read_table_text(request: Request) -> bytes:
    """The CSV in a request's body.

    Args:
        request: the request; its body is already bounded

    Returns:
        the bytes, nothing judged yet

    Raises:
        ApiError: the media type is not CSV
    """
    refuse_media_type(request, (CSV_BODY,))
    return await request.body()


async def read_plain_text(request: Request) -> str:
    """The text in a request's body.

    Args:
        request: the request; its body is already bounded

    Returns:
        the text

    Raises:
        ApiError: the media type is not plain text
        Refused: the body is no text in UTF-8, or holds a character that cannot be stored
    """
    refuse_media_type(request, (TEXT_BODY,))
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if not is_text(text):
        raise Refused(Problem(field="", code=NOT_TEXT.code, message=NOT_UTF_8, fix="send the file as it is, in UTF-8"))
    return text


def refuse_media_type(request: Request, media_types: Sequence[str]) -> None:
    """Refuse a body that does not call itself what it has to be, in UTF-8, uncompressed.

    Args:
        request: the request
        media_types: what the body may call itself

    Raises:
        ApiError: content-type or content-encoding is another
    """
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    said = {parameter.strip().lower().replace('"', "") for parameter in parameters.split(";")}
    if media_type.strip().lower() not in media_types or not said <= PARAMETERS[media_types[0]]:
        named = " or ".join(media_types)
        raise ApiError("unsupported_media_type", f"send the body as content-type: {named}, in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError("unsupported_media_type", "send the body without content-encoding")
