"""Does a change start from what is there now? If-Match with the ETag that the caller read."""

from fastapi import Request

from service.api.problems import ApiError
from service.errors import Stale


def require_match(request: Request, etag: str) -> None:
    """Refuse a change that does not say what it starts from, or starts from something else.

    Args:
        request: the request
        etag: ETag of what is there now

    Raises:
        ApiError: the request has no If-Match
        Stale: it has another ETag
    """
    given = ",".join(request.headers.getlist("if-match")).strip()
    if not given:
        raise ApiError("precondition_required", "give If-Match: the ETag that came with what you read")
    if given != "*" and etag not in {tag.strip() for tag in given.split(",")}:
        raise Stale("it was changed since you read it")
