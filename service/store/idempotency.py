"""Responses to requests with an Idempotency-Key, stored in the transaction that did their work."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Engine, delete, select, update

from service.store.engine import answering, insert_new, together
from service.store.queries import later, now
from service.store.tables import REMEMBERED_ANSWERS

RESPONSE_HOURS = 24
"""Lifetime of a stored response. Source: a choice; longer than any client retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """Identity of a request."""

    caller: str
    """Owner of the key or token."""
    operation: str
    key: str
    """The Idempotency-Key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A stored response."""

    request_digest: str
    """Digest of the request."""
    status: int
    headers: Mapping[str, str]
    content: bytes


def once(
    engine: Engine, key: RequestKey, request_digest: str, act: Callable[[], "StoredResponse"]
) -> tuple["StoredResponse", bool]:
    """Run a request, unless a response is stored under its key.

    The work and the response are one transaction, so a failure in between leaves neither. A second request under the
    same key waits for the first.
    """
    with answering(), together(engine) as connection:
        before = _reserved(connection, key, request_digest)
        if before is not None:
            return before, True
        answer = act()
        connection.execute(update(REMEMBERED_ANSWERS).where(*_is(key)).values(**asdict(answer)))
        return answer, False


def _reserved(connection: Connection, key: RequestKey, request_digest: str) -> StoredResponse | None:
    """Reserve a key, or return the response of the request that reserved it before."""
    connection.execute(delete(REMEMBERED_ANSWERS).where(*_is(key), REMEMBERED_ANSWERS.c.expires_at < now()))
    row: dict[str, Any] = {
        **asdict(key), "request_digest": request_digest, "status": 0, "headers": {}, "content": b"",
        "expires_at": later(RESPONSE_HOURS * 3600),
    }  # fmt: skip
    taking = insert_new(connection, REMEMBERED_ANSWERS).values(row).returning(REMEMBERED_ANSWERS.c.key)
    if connection.execute(taking).first() is not None:
        return None
    columns = [REMEMBERED_ANSWERS.c[name] for name in StoredResponse.__dataclass_fields__]
    return StoredResponse(**connection.execute(select(*columns).where(*_is(key))).mappings().one())


def _is(key: RequestKey) -> tuple[Any, ...]:
    return tuple(REMEMBERED_ANSWERS.c[name] == value for name, value in asdict(key).items())
