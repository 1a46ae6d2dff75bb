"""Problem responses: one schema, and for each status a response with examples."""

import json
from collections.abc import Mapping
from typing import Any

from service.api.access.authorization import ISSUER_AWAY, NO_KEY
from service.api.caching import NEEDED, REUSED
from service.api.compute import NO_SLOT, caller_excess, process_lost, queue_full
from service.api.cross_site import CROSS_SITE, UNKNOWN_NAME
from service.api.errors import KINDS, LEAVING, MEDIA_TYPE, problem_response
from service.api.limits.http_limits import TOO_MUCH
from service.api.limits.rate_limits import too_many_requests
from service.api.limits.request_counts import Allowance
from service.api.openapi import Schema, ref
from service.api.server import ONE_HOST
from service.errors import MOST_PROBLEMS
from service.features.launch_checks.targets import NO_WORKER_FIX
from service.features.workers.leases import NOT_HELD
from service.jobs.leases import FINISHED
from service.openapi.published_names import PARTS

DEFAULT = "Problem"
"""The response for every status that an operation does not name."""

RESPONSES: Mapping[str, str] = {
    "404": "NotFound",
    "409": "Conflict",
    "412": "PreconditionFailed",
    "422": "UnprocessableContent",
    "428": "PreconditionRequired",
    "503": "ServiceUnavailable",
    "4XX": DEFAULT,
    "default": DEFAULT,
}
"""Component of the response for each status that operations name, called as HTTP calls it."""

LIMIT_HEADERS: Mapping[str, Schema] = PARTS["headers"]
"""Headers of every answer to a request that is counted: draft-ietf-httpapi-ratelimit-headers-10."""

REQUEST_ID = "5d2f0c0a6c0f4b5e9a3f1f6f0c8e7a21"

DETAILS: Mapping[str, str] = {
    **PARTS["details"],
    "bad_request": ONE_HOST,
    "unauthorized": NO_KEY,
    "foreign_page": CROSS_SITE,
    "unknown_host": UNKNOWN_NAME,
    "key_reused": REUSED,
    "precondition_required": NEEDED,
    "too_many_computations": caller_excess(16, 8).detail,
    "rate_limited": too_many_requests(Allowance(0, 20.0, 1.0)).detail,
    "too_many_bodies": TOO_MUCH,
    "computing_full": queue_full(60).detail,
    "computation_lost": process_lost(1).detail,
    "issuer_away": ISSUER_AWAY,
    "busy": NO_SLOT,
    "draining": LEAVING,
}
"""What each kind may say of one time that it happened."""

FIELDS: Mapping[str, Mapping[str, str]] = {
    **PARTS["fieldDetails"],
    "no_matching_worker": PARTS["fieldDetails"]["no_matching_worker"] | {"fix": NO_WORKER_FIX},
    **{
        one.code: {"pointer": f"/{one.field}", "code": one.code, "message": one.message, "fix": one.fix}
        for one in (FINISHED, NOT_HELD)
    },
}
"""The same of kinds that name a field."""


def problem_schemas() -> dict[str, Schema]:
    """The schema of a problem document, and of each thing to mend in it."""
    problem, field = PARTS["schemas"]["Problem"], PARTS["schemas"]["FieldProblem"]
    code, errors = problem["properties"]["code"], problem["properties"]["errors"]
    filled = {
        "code": code | {"enum": list(KINDS)},
        "errors": errors | {"maxItems": MOST_PROBLEMS},
    }
    return {"Problem": problem | {"properties": problem["properties"] | filled}, "FieldProblem": field}


def problem_responses() -> dict[str, Schema]:
    """A response for each status, with an example of every kind of problem that has it."""
    return {name: _response(status) for status, name in RESPONSES.items() if status != "4XX"}


def response_ref(status: str) -> Schema:
    """The response of a status that is a problem document."""
    return {"$ref": f"#/components/responses/{RESPONSES[status]}"}


def problem_example(code: str) -> dict[str, Any]:
    """A problem document of one kind, as the service sends it."""
    fields = [] if code in DETAILS else [dict(FIELDS[code])]
    detail = DETAILS[code] if code in DETAILS else f"{fields[0]['message']}; {fields[0]['fix']}"
    response = problem_response({"state": {"request_id": REQUEST_ID}}, code, detail, errors=fields)
    document: dict[str, Any] = json.loads(bytes(response.body))
    return document


def _response(status: str) -> Schema:
    own = [code for code, kind in KINDS.items() if str(kind.status) == status]
    codes = own or [code for code, kind in KINDS.items() if str(kind.status) not in RESPONSES]
    titles = [KINDS[code].title for code in codes]
    return {
        "description": f"{'; or '.join(titles)}." if own else EVERY_OTHER,
        **({"headers": PARTS["problemHeaders"]} if status in {"503", "default"} else {}),
        "content": {
            MEDIA_TYPE: {
                "schema": ref("Problem"),
                "examples": {code: {"summary": KINDS[code].title, "value": problem_example(code)} for code in codes},
            }
        },
    }


EVERY_OTHER = (
    "Whatever else goes wrong, under its own status: 400 not JSON, 401 no valid key, 403 a key without this scope, 408 "
    "a body that arrives too late, 413 too large, 415 another media type, 429 too many requests."
)
