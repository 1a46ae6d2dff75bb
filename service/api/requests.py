"""Request bodies: media types, sizes, and bodies that a compute process reads."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Request

from service.api.computing.compute import compute
from service.api.errors import ApiError
from service.api.openapi import CSV_BODY, JSON_BODY, TEXT_BODY
from service.errors import Problem, Refused
from service.text_bounds import is_text
from service.validation.json_text import NOT_TEXT

LONG_BYTES = 32 * 1024
"""Longest body that is read in this process."""

MOST_MARKS = 1_000
"""Words and marks of a launcher's text that are read in this process, in milliseconds; a file of 300 settings has as
many."""

MARKS = (b",", b"=", b":", b".", b"[", b"{", b"#", b"\n", b"\\n")

DEADLINE_SECONDS = 60.0
"""Time limit of reading a body in another process. Source: a choice; with free cores the longest takes about 1 s."""

BODY_DEADLINE = Problem(
    field="",
    code="took_too_long",
    message=f"the body takes longer to read than {DEADLINE_SECONDS:.0f} s",
    fix="send less at once, or the part of the file that says how to train",
)


def is_long(content: bytes) -> bool:
    """Whether to read a body in another process because of its length."""
    return len(content) > LONG_BYTES


def is_long_launcher_text(content: bytes) -> bool:
    """Whether to read a body with a launcher's text in another process: it is long, or has many settings."""
    if is_long(content):
        return True
    return len(content) > MOST_MARKS and sum(map(content.count, MARKS)) + len(content.split()) > MOST_MARKS


async def read_in_process(request: Request, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a reader of a body in another process."""
    try:
        return await compute(request, function, *arguments, deadline_seconds=DEADLINE_SECONDS)
    except Refused as error:
        if error.problems[0].code == BODY_DEADLINE.code:
            raise Refused(BODY_DEADLINE) from None
        raise


PARAMETERS = {
    JSON_BODY: {"", "charset=utf-8"},
    CSV_BODY: {"", "charset=utf-8", "header=present"},
    TEXT_BODY: {"", "charset=utf-8"},
}
"""Accepted parameters of each media type."""

NOT_UTF_8 = "the body is no text in UTF-8, or holds a NUL"


def text_of(content: bytes) -> str:
    """The text of a body."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if not is_text(text):
        raise Refused(Problem(field="", code=NOT_TEXT.code, message=NOT_UTF_8, fix="send the file as it is, in UTF-8"))
    return text


def refuse_media_type(request: Request, media_types: Sequence[str]) -> str:
    """The media type of a body; one of another type or charset, or with a content encoding, is refused."""
    given_type, _, parameters = request.headers.get("content-type", "").partition(";")
    media_type = given_type.strip().lower()
    given = {parameter.strip().lower().replace('"', "") for parameter in parameters.split(";")}
    if media_type not in media_types or not given <= PARAMETERS[media_types[0]]:
        named = " or ".join(media_types)
        raise ApiError("unsupported_media_type", f"send the body as content-type: {named}, in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError("unsupported_media_type", "send the body without content-encoding")
    return media_type
