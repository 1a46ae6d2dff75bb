"""Does a change start from the row as it is? If-Match, compared strongly with the row's ETag as RFC 9110 has it."""

from typing import Annotated

from fastapi import Depends, Request

from service.api.conditional import etag_of
from service.api.problems import ApiError
from service.tabular.lists import IsCurrent, Record
from service.validation.serialization import to_bytes

NEEDED = "send If-Match with the ETag that GET of the row gives, so that nobody else's change is undone (* for any)"


def _if_match(request: Request) -> IsCurrent:
    given = request.headers.getlist("if-match")
    if not given:
        raise ApiError("precondition_required", NEEDED)
    tags = {tag.strip() for value in given for tag in value.split(",")}
    return lambda record: tags == {"*"} or row_etag(record) in tags


IfMatch = Annotated[IsCurrent, Depends(_if_match)]
"""Argument of a route that changes a row: whether the caller's version is the one that holds."""


def row_etag(record: Record) -> str:
    """The ETag of one row: that of its JSON, in which its revision stands.

    Args:
        record: the row as its list shows it

    Returns:
        the strong ETag that GET of the row gives
    """
    return etag_of(to_bytes(record))
