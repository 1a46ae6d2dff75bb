"""Records of requests in the transaction of their change: the audit log, and responses under an Idempotency-Key."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from service.store.engine import answering, insert_new, later, now, reading, row_as, together, writing
from service.store.tables import AUDIT_LOG, REMEMBERED_ANSWERS

AuditOutcome = Literal["done", "forbidden", "not_found", "conflict", "stale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedCall:
    """The caller and operation of a change."""

    caller: str | None
    """Public part of the key, or subject of the token; None where the service requires none."""
    owner: str
    operation: str
    """Operation id in the contract, or the command."""
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    call: AuditedCall
    at: datetime
    object: str | None
    """Name of the changed object; None where the request has no storable name."""
    outcome: AuditOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry(AuditEntry):
    number: int
    """Number of the entry; later entries have higher ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPart:
    """A filtered page of the log."""

    among: Mapping[str, Collection[str | None]] = field(default_factory=dict)
    """Accepted values of each filtered column, in lower case; None accepts an absent value."""
    behind: int | None = None
    """Number of the last entry of the page before; None for the first page."""
    newest_first: bool = False
    """Whether numbers descend."""
    most: int


_CALL: ContextVar[AuditedCall | None] = ContextVar("call", default=None)


def set_audited_call(call: AuditedCall) -> None:
    """Set the caller of all later writes of this context."""
    _CALL.set(call)


@contextmanager
def auditing(call: AuditedCall) -> Iterator[None]:
    """Set the caller of writes inside a block."""
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


def log_change_in(connection: sa.Connection, *objects: str) -> None:
    """Log a change, in the transaction that makes it."""
    call = _CALL.get()
    if call is not None:
        moment = datetime.now(UTC)
        _insert_in(connection, [AuditEntry(call=call, at=moment, object=name, outcome="done") for name in objects])


def note(engine: sa.Engine, *objects: str) -> None:
    """Log an act that grants access without changing a row, such as sharing."""
    with answering(), writing(engine) as connection:
        log_change_in(connection, *objects)


def store_entries(engine: sa.Engine, entries: Iterable[AuditEntry]) -> None:
    """Store entries of requests without a transaction of their own."""
    with answering(), writing(engine) as connection:
        _insert_in(connection, entries)


def read_audit(engine: sa.Engine, part: AuditPart) -> list[StoredEntry]:
    """A page of the log, in the order of its numbers."""
    number = AUDIT_LOG.c.number
    query = sa.select(AUDIT_LOG).where(*(_is_among(AUDIT_LOG.c[name], values) for name, values in part.among.items()))
    if part.behind is not None:
        query = query.where(number < part.behind if part.newest_first else number > part.behind)
    query = query.order_by(number.desc() if part.newest_first else number).limit(part.most)
    with answering(), reading(engine) as connection:
        rows = connection.execute(query).mappings()
        return [row_as(StoredEntry, row, call=row_as(AuditedCall, row)) for row in rows]


def _is_among(column: sa.ColumnElement[Any], values: Collection[str | None]) -> sa.ColumnElement[bool]:
    """Whether a column holds one of the values in lower case, or is absent where None is among them."""
    texts = [value for value in values if value is not None]
    is_absent = sa.or_(column.is_(None), column == "") if None in values else sa.false()
    return sa.or_(sa.func.lower(column).in_(texts), is_absent)


def _insert_in(connection: sa.Connection, entries: Iterable[AuditEntry]) -> None:
    rows = [
        {**asdict(entry.call), "at": entry.at, "object": entry.object, "outcome": entry.outcome} for entry in entries
    ]
    if rows:
        connection.execute(sa.insert(AUDIT_LOG), rows)


RESPONSE_HOURS = 24
"""Lifetime of a stored response. Source: a choice; longer than any client retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    caller: str
    operation: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    request_digest: str
    status: int
    headers: Mapping[str, str]
    content: bytes


def once(
    engine: sa.Engine, key: RequestKey, request_digest: str, act: Callable[[], "StoredResponse"]
) -> tuple["StoredResponse", bool]:
    """The response of a request, and whether it is a stored one; one transaction covers the work and the response."""
    columns = REMEMBERED_ANSWERS.c
    has_key = [columns[name] == value for name, value in asdict(key).items()]
    row: dict[str, Any] = {
        **asdict(key), "request_digest": request_digest, "status": 0, "headers": {}, "content": b"",
        "expires_at": later(RESPONSE_HOURS * 3600),
    }  # fmt: skip
    with answering(), together(engine) as connection:
        connection.execute(sa.delete(REMEMBERED_ANSWERS).where(*has_key, columns.expires_at < now()))
        reservation = insert_new(connection, REMEMBERED_ANSWERS).values(row).returning(columns.key)
        if connection.execute(reservation).first() is None:
            stored = sa.select(*(columns[name] for name in StoredResponse.__dataclass_fields__)).where(*has_key)
            return StoredResponse(**connection.execute(stored).mappings().one()), True
        answer = act()
        connection.execute(sa.update(REMEMBERED_ANSWERS).where(*has_key).values(**asdict(answer)))
        return answer, False
