"""Which kinds of problems are there? Each has a stable code, a status of HTTP and a title, and a row in /docs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem: its HTTP status and what it is called."""

    status: int
    title: str


KINDS: Mapping[str, Kind] = {
    "not_json": Kind(400, "The body is not a JSON object"),
    "bad_request": Kind(400, "The request breaks the rules of HTTP"),
    "unauthorized": Kind(401, "No key that holds came with the request"),
    "forbidden": Kind(403, "The key does not allow this"),
    "foreign_page": Kind(403, "A page of another origin sent this"),
    "unknown_metric": Kind(404, "No number of an answer has this name"),
    "unknown_revision": Kind(404, "No catalogue of this revision is kept"),
    "not_found": Kind(404, "There is nothing at this path"),
    "method_not_allowed": Kind(405, "This path does not take this method"),
    "body_timeout": Kind(408, "The body did not arrive in time"),
    "head_timeout": Kind(408, "The request line and the headers did not arrive in time"),
    "no_matching_worker": Kind(409, "No live worker has the hardware that was asked for"),
    "conflict": Kind(409, "The change contradicts what the catalogue holds"),
    "already_finished": Kind(409, "The attempt ended with another outcome before"),
    "lease_lost": Kind(409, "No job is held under this lease"),
    "stale": Kind(412, "The row was changed since it was read"),
    "body_too_large": Kind(413, "The body is too large"),
    "unsupported_media_type": Kind(415, "The body is of an unsupported media type"),
    "unknown_host": Kind(421, "The service is not called what it was asked as"),
    "key_reused": Kind(422, "This Idempotency-Key came with another request before"),
    "refused": Kind(422, "The question cannot be answered as asked"),
    "precondition_required": Kind(428, "A change has to say which version it starts from"),
    "too_many_computations": Kind(429, "Too many computations of this caller run or wait"),
    "rate_limited": Kind(429, "Too many requests came from this caller"),
    "head_too_large": Kind(431, "The request line and the headers are too large"),
    "internal_error": Kind(500, "The service failed to answer"),
    "too_many_connections": Kind(503, "There are more connections than the service holds"),
    "too_many_bodies": Kind(503, "The service holds as much of other requests as it may"),
    "computing_full": Kind(503, "As many computations wait as the service lets wait"),
    "computation_lost": Kind(503, "The process that computed the answer ended"),
    "issuer_away": Kind(503, "Whoever signs tokens does not say with which key"),
    "busy": Kind(503, "Other changes are being written"),
    "draining": Kind(503, "This process of the service is about to end"),
    "not_ready": Kind(503, "The service cannot reach its database"),
}
"""Every kind by its stable code; `type` of a document is `/docs#` and the code."""

ABOUT_THE_BODY = {"not_json", "body_timeout", "body_too_large", "unsupported_media_type"}
"""Kinds whose one thing to mend is the body as a whole, whose pointer is empty; their detail is the fix."""

CODE_OF_STATUS = {kind.status: code for code, kind in KINDS.items()}
"""The kind of what the router refuses, by its status: the last one that has it."""
