"""Errors of the client.

ClientError
├── Problem      the service refuses, or fails to answer: its problem document, typed
├── Unreachable  no complete answer arrived, after all retries
└── Unreadable   an answer that this version of the client cannot read
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http.client import responses
from typing import Any

NO_DOCUMENT = "unknown"
"""Code of a problem without a document: some other server on the way answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a problem document."""

    pointer: str | None
    """JSON pointer of the field in the body; None where a parameter is wrong."""
    parameter: str | None
    """Query parameter; None where the body is wrong."""
    code: str
    """Broken rule, stable."""
    message: str
    """The fault, and why it matters."""
    fix: str
    """The remedy."""


class ClientError(Exception):
    """Base of all errors of the client."""


class Problem(ClientError):
    """The service refuses, or fails to answer.

    Args:
        status: HTTP status
        document: its problem document; empty where none came
        request_id: the request's id in the service's log, where the document has none
    """

    def __init__(self, status: int, document: Mapping[str, Any], request_id: str = "") -> None:
        self.status = status
        self.code = str(document.get("code", NO_DOCUMENT))
        """Kind of the problem, stable."""
        self.detail = str(document.get("detail") or responses.get(status, "no reason was given"))
        """The fault of this request."""
        self.request_id = str(document.get("request_id") or request_id)
        self.errors = tuple(map(_finding, document.get("errors") or ()))
        """Its findings."""
        super().__init__(f"{status} {self.code}: {self.detail}")


class Unreachable(ClientError):
    """No complete answer: no connection, one that broke, or none in time."""


class Unreadable(ClientError):
    """An answer that this version of the client cannot read."""


def _finding(error: Mapping[str, Any]) -> Finding:
    texts = {name: str(error.get(name, "")) for name in ("code", "message", "fix")}
    return Finding(pointer=error.get("pointer"), parameter=error.get("parameter"), **texts)
