"""Who changed what, and when? Noted in the transaction of the change: neither is there without the other.

Who answers for what is written is said once, where a request or a command begins; what workers and the service itself
write is nobody's change, and is not noted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Engine, false, func, insert, or_, select

from service.store.engine import answering, reading, writing
from service.store.tables import AUDIT_LOG

AuditOutcome = Literal["done", "forbidden", "not_found", "conflict", "stale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """A change that somebody asks for."""

    caller: str | None
    """Public part of the key, or subject of the token; None where the service asks for none."""
    owner: str
    """Owner of the key or the token."""
    operation: str
    """What they ask for, as the contract calls it; or the command."""
    request_id: str | None = None
    """Id of the request; None where it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What became of a deed."""

    deed: Deed
    """Who asked for what."""
    at: datetime
    """When."""
    object: str | None
    """What was to be changed; None where that was told in no form that may be kept."""
    outcome: AuditOutcome
    """Whether it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEntry(AuditEntry):
    """An entry as the log holds it."""

    number: int
    """Its number; later entries have higher ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPart:
    """Some entries of the log."""

    among: Mapping[str, Collection[str | None]] = field(default_factory=dict)
    """By column of texts in ASCII, those that an entry may hold there, in small letters; None for none."""
    behind: int | None = None
    """Number behind which they stand in their order; None for the beginning."""
    newest_first: bool = False
    """Whether their numbers descend."""
    most: int
    """How many of them."""


_DEED: ContextVar[Deed | None] = ContextVar("deed", default=None)


def act_as(deed: Deed) -> None:
    """Say who answers for all that this context writes from now on."""
    _DEED.set(deed)


@contextmanager
def acting_as(deed: Deed) -> Iterator[None]:
    """Say who answers for what is written inside."""
    token = _DEED.set(deed)
    try:
        yield
    finally:
        _DEED.reset(token)


def note_in(connection: Connection, *objects: str) -> None:
    """Note that something is changed, in the transaction that changes it."""
    deed = _DEED.get()
    if deed is not None:
        moment = datetime.now(UTC)
        _keep_in(connection, [AuditEntry(deed=deed, at=moment, object=name, outcome="done") for name in objects])


def note(engine: Engine, *objects: str) -> None:
    """Note what changes no row but what somebody may do: that something was shared."""
    with answering(), writing(engine) as connection:
        note_in(connection, *objects)


def keep_entries(engine: Engine, entries: Iterable[AuditEntry]) -> None:
    """Keep entries of what wrote nothing itself."""
    with answering(), writing(engine) as connection:
        _keep_in(connection, entries)


def read_audit(engine: Engine, part: AuditPart) -> list[KeptEntry]:
    """A part of the log, in the order of its numbers."""
    number = AUDIT_LOG.c.number
    query = select(AUDIT_LOG).where(*(_is_among(AUDIT_LOG.c[name], values) for name, values in part.among.items()))
    if part.behind is not None:
        query = query.where(number < part.behind if part.newest_first else number > part.behind)
    query = query.order_by(number.desc() if part.newest_first else number).limit(part.most)
    with answering(), reading(engine) as connection:
        return [
            KeptEntry(
                deed=Deed(caller=row.caller, owner=row.owner, operation=row.operation, request_id=row.request_id),
                at=row.at,
                object=row.object,
                outcome=row.outcome,
                number=row.number,
            )
            for row in connection.execute(query)
        ]


def _is_among(column: ColumnElement[Any], values: Collection[str | None]) -> ColumnElement[bool]:
    """Whether a text is one of some in small letters, or absent where None is one of them."""
    texts = [value for value in values if value is not None]
    is_absent = or_(column.is_(None), column == "") if None in values else false()
    return or_(func.lower(column).in_(texts), is_absent)


def _keep_in(connection: Connection, entries: Iterable[AuditEntry]) -> None:
    rows = [
        {**asdict(entry.deed), "at": entry.at, "object": entry.object, "outcome": entry.outcome} for entry in entries
    ]
    if rows:
        connection.execute(insert(AUDIT_LOG), rows)
