"""Errors as RFC 9457 problem documents that name the field and the fix."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from service.errors import (
    MOST_PROBLEMS,
    AlreadyFinished,
    Busy,
    Conflict,
    ForAdmins,
    LeaseLost,
    Leaving,
    NotFound,
    NotJson,
    NoWorker,
    Problem,
    Refused,
    Stale,
    TraincostError,
    UnknownMetric,
    UnknownRevision,
    Unreachable,
)
from service.validation.flat import QUERY, flat_fields, rephrased
from service.validation.question_parts import PARTS


@dataclass(frozen=True, slots=True)
class Kind:
    """HTTP status and title of one kind of problem."""

    status: int
    title: str


with Path(__file__).with_name("problems.csv").open(encoding="utf-8", newline="") as _rows:
    KINDS: Mapping[str, Kind] = {row["code"]: Kind(int(row["status"]), row["title"]) for row in csv.DictReader(_rows)}
"""Problems by stable code; `type` of a document is `/docs#` and the code."""

BODY_CODES = {"not_json", "body_timeout", "body_too_large", "unsupported_media_type"}
"""Codes whose one error concerns the whole body: the pointer is empty, and the detail is the fix."""

CODE_OF_STATUS = {kind.status: code for code, kind in KINDS.items()}
"""Code of an error of the router, by status: the last one that has it."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class ReservedPath(Route):
    """A literal path with the methods that only routes with parameters accept; it answers them with 405."""


def reserved_paths(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """Routes to match before all others, so that no path parameter captures a literal path."""
    known = [route for route in routes if isinstance(route, APIRoute)]
    taken: dict[str, set[str]] = {}
    for route in known:
        taken.setdefault(route.path, set()).update(route.methods or ())
    example = {path: re.sub(r"\{[^}]*\}", "x", path) for path in taken}
    matched = {route.path: {path for path in taken if route.path_regex.match(example[path])} for route in known}
    return [
        ReservedPath(path, _method_not_allowed, methods=sorted({*METHODS} - methods))
        for path, methods in taken.items()
        if any(path in matched[wider] and wider not in matched[path] and not taken[wider] <= methods for wider in taken)
    ]


def accepts_method(routes: Iterable[BaseRoute], scope: dict[str, object]) -> bool:
    """Whether the path of a scope accepts its method."""
    match = next((route for route in routes if route.matches(scope)[0] == Match.FULL), None)
    return match is not None and not isinstance(match, ReservedPath)


async def _method_not_allowed(_request: Request) -> None:
    raise HTTPException(405)


MEDIA_TYPE = "application/problem+json"
MOST_BYTES = 16 * 1024
LONGEST_TEXT = 1_000

CODE_OF_ERROR: Mapping[type[TraincostError], str] = {
    AlreadyFinished: "already_finished", Busy: "busy", Conflict: "conflict", ForAdmins: "forbidden",
    LeaseLost: "lease_lost", Leaving: "draining", NotFound: "not_found", NotJson: "not_json",
    NoWorker: "no_matching_worker", Refused: "refused", Stale: "stale", UnknownMetric: "unknown_metric",
    UnknownRevision: "unknown_revision", Unreachable: "not_ready",
}  # fmt: skip
"""Code of each exception; a subclass without one has that of its base."""

NOTHING_THERE = "there is nothing at this path; GET /docs lists every operation"

RETRY_AFTER = {"Retry-After": "5"}
"""Header of answers that need the database."""

CALLER_GONE = 499
"""Status of a request whose client disconnected. Source: nginx, client closed request."""
LEAVING = "this process of the service is about to end; ask again, another one or the next will answer"


class ApiError(TraincostError):
    """A request that fails at the level of HTTP, not because of its question."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = headers or {}


class CallerGone(TraincostError):
    """The client disconnected before its answer."""


class WrongParameter(Refused):
    """A wrong query parameter, of any method."""


def problem_response(
    scope: Mapping[str, Any],
    code: str,
    detail: str,
    *,
    errors: Sequence[dict[str, Any]] = (),
    headers: Any = None,
    report: Any = None,
) -> Response:
    """The problem document of one failed request."""
    kind = KINDS[code]
    if code in BODY_CODES:
        errors = [{"pointer": "", "code": code, "message": kind.title, "fix": detail}]
    document = {
        "type": f"/docs#{code}",
        "title": kind.title,
        "status": kind.status,
        "code": code,
        "detail": _shortened(detail),
        "request_id": scope.get("state", {}).get("request_id", ""),
        "errors": list(errors[:MOST_PROBLEMS]),
    }
    while len(content := to_json(document)) > MOST_BYTES:
        document["errors"].pop()
    if report is not None:
        content = to_json({**document, "report": report})
    return Response(content, status_code=kind.status, headers=headers, media_type=MEDIA_TYPE)


def on_api_error(request: Request, error: ApiError) -> Response:
    """Problem document of an error at the level of HTTP."""
    return problem_response(request.scope, error.code, error.detail, headers=error.headers)


def on_refused(request: Request, error: Refused) -> Response:
    """Problem document of a question that cannot be answered as asked."""
    location, problems = _pointer, list(error.problems)
    if request.method == "GET" or isinstance(error, WrongParameter):
        location, problems = _parameter, [rephrased(problem, QUERY) for problem in problems]
    first, *others = problems
    detail = f"{first.message}; {first.fix}" + (f" (and {len(others)} more)" if others else "")
    errors = [
        location(problem)
        | {"code": problem.code, "message": _shortened(problem.message), "fix": _shortened(problem.fix)}
        for problem in problems
    ]
    return problem_response(request.scope, _code_of(error), detail, errors=errors)


def on_error(request: Request, error: TraincostError) -> Response:
    """Problem document of an exception that concerns no field."""
    headers = RETRY_AFTER if isinstance(error, Unreachable) else None
    return problem_response(request.scope, _code_of(error), str(error), headers=headers)


def _code_of(error: TraincostError) -> str:
    return next(CODE_OF_ERROR[kind] for kind in type(error).__mro__ if kind in CODE_OF_ERROR)


def on_caller_gone(_: Request, __: CallerGone) -> Response:
    """The empty answer of a disconnected client, with a status for the metrics."""
    return Response(status_code=CALLER_GONE)


def on_invalid_parameters(request: Request, error: RequestValidationError) -> Response:
    """Problem document of path or query parameters that FastAPI rejects."""
    problems = [
        Problem(
            field="" if finding["type"] == "extra_forbidden" else ".".join(map(str, finding["loc"][1:])),
            code=finding["type"],
            message=finding["msg"],
            fix="see the parameter's schema in /openapi.json",
        )
        for finding in error.errors()
    ]
    return on_refused(request, WrongParameter(*problems))


def on_http_exception(request: Request, error: HTTPException) -> Response:
    """Problem document of a router error: an unknown path, or a method that the path does not accept."""
    if error.status_code != 405:
        code = CODE_OF_STATUS.get(error.status_code, "internal_error")
        detail = NOTHING_THERE if code == "not_found" else KINDS[code].title
        return problem_response(request.scope, code, detail, headers=error.headers)
    routes = request.app.router.routes
    taken = {method for method in METHODS if accepts_method(routes, {**request.scope, "method": method})}
    allow = {"Allow": ", ".join(sorted(taken | {"OPTIONS"} | ({"HEAD"} if "GET" in taken else set())))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=allow)
    return problem_response(request.scope, "method_not_allowed", f"use {allow['Allow']}", headers=allow)


def _pointer(problem: Problem) -> dict[str, str]:
    """RFC 6901 pointer of a dotted path; the whole body is the empty pointer."""
    steps = problem.field.split(".") if problem.field else []
    return {"pointer": "".join(f"/{step}" for step in steps)}


def _parameter(problem: Problem) -> dict[str, str]:
    """Query parameter of a field in the flat form; a whole part has none."""
    name = problem.field
    return {} if not name or (name in PARTS and name not in flat_fields()) else {"parameter": name}


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 4].rpartition(' ')[0]} ..."


HANDLERS: dict[Any, Any] = {
    ApiError: on_api_error,
    CallerGone: on_caller_gone,
    Refused: on_refused,
    NotJson: on_error,
    NotFound: on_error,
    Stale: on_error,
    Unreachable: on_error,
    RequestValidationError: on_invalid_parameters,
    HTTPException: on_http_exception,
}
