"""What if a request arrives twice? Under an Idempotency-Key it is done once, and answered twice with the same answer.

The key holds for a day, for the owner of whoever sent it and the operation that it was sent to: what a request makes is
its owner's, so it is made once whichever of their keys is sent with it. What is done and what is answered are one
transaction: a process that dies in between leaves nothing, and the request may be sent again.
"""

import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from pydantic_core import to_json

from service.api.callers import caller_of
from service.api.database import database_of
from service.api.json_schema import Schema
from service.api.problems import ApiError, WrongParameter
from service.errors import Problem
from service.store import RememberedAnswer, RequestKey, once
from service.validation.serialization import digest_of

HEADER = "Idempotency-Key"
REPEATED = "Idempotent-Replayed"
"""Header of an answer that was given before."""

KEY = re.compile(r"[\x21-\x7e]{1,255}")
"""What a key looks like: visible ASCII."""

MALFORMED = Problem(
    field=HEADER,
    code="malformed",
    message="the key is not 1 to 255 visible ASCII characters, or is given more than once",
    fix="send a random one, such as a UUID, and the same again with the same request",
)

REUSED = (
    "this Idempotency-Key came with another request before, so it is unclear which of both is meant; "
    "send a new key with a new request"
)

PARAMETER: Schema = {
    "name": HEADER,
    "in": "header",
    "description": "What the caller calls this request, of 1 to 255 visible ASCII characters; one name for all keys "
    "and tokens of an owner. The same key with the same request is answered within 24 hours as it was first, and "
    "nothing is done twice; with another request it is refused.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "example": "9f4e1c0a-6f0b-4c39-8f1f-0a8a3f5f5c11",
}
"""How it stands in the contract of an operation."""


_REPEATED: Schema = {
    "description": "true where this answer was given before under the same Idempotency-Key.",
    "schema": {"type": "string"},
}


def idempotent(write: Callable[..., Response]) -> Callable[..., Response]:
    """A route that makes something, as one that makes it once under an Idempotency-Key.

    Args:
        write: the route, a plain function with arguments `request` and `body`

    Returns:
        the route with the same arguments
    """

    def route(request: Request, **given: Any) -> Response:
        sent = request.headers.getlist(HEADER)
        if not sent:
            return write(request=request, **given)
        if len(sent) > 1 or KEY.fullmatch(sent[0]) is None:
            raise WrongParameter(MALFORMED)
        key = RequestKey(caller=caller_of(request).owner, operation=request.scope["route"].operation_id, key=sent[0])
        digest = digest_of(_canonical(given["body"]) + request.scope["query_string"])
        engine = database_of(request)
        answer, is_repeat = once(engine, key, digest, lambda: _kept(write(request=request, **given), digest))
        if answer.request_digest != digest:
            raise ApiError("key_reused", REUSED)
        headers = {**answer.headers, **({REPEATED: "true"} if is_repeat else {})}
        return Response(answer.content, status_code=answer.status, headers=headers)

    route.__name__, route.__doc__ = write.__name__, write.__doc__
    vars(route)["__signature__"] = signature(write)
    return route


def is_done_once(method: str, responses: Mapping[str, Any]) -> bool:
    """Whether an operation makes something, so that it takes an Idempotency-Key.

    Args:
        method: its method, in lower case
        responses: its responses, by status

    Returns:
        true where a POST answers 201 or 202
    """
    return method == "post" and not {"201", "202"}.isdisjoint(responses)


def say_done_once(operation: Schema) -> None:
    """Add to the contract what an operation does with an Idempotency-Key.

    Args:
        operation: OpenAPI operation, complete but for this
    """
    operation["parameters"] = [*operation.get("parameters", ()), PARAMETER]
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            response["headers"] = response.get("headers", {}) | {REPEATED: _REPEATED}


def _canonical(body: Mapping[str, Any]) -> bytes:
    """A body, whatever the order of its fields."""
    return to_json(_ordered(body))


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _ordered(value[name]) for name in sorted(value)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def _kept(response: Response, digest: str) -> RememberedAnswer:
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return RememberedAnswer(
        request_digest=digest, status=response.status_code, headers=headers, content=bytes(response.body)
    )
