"""Audit log: every change as a list, newest first."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice

from service.estimator.question import Documented
from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import TEAM
from service.store.requests import AuditedCall, AuditOutcome, AuditPart, auditing, read_audit
from service.tabular.lists import Column, Listed, ListQuery, columns_of

NEWEST_FIRST = "-number"

NUMBER = "number"
LARGEST_NUMBER = 2**31 - 1
"""Largest number of an entry, whatever a cursor says."""

IN_ASCII = frozenset(("operation", "object", "outcome", "request_id"))
"""Columns with ASCII texts, which both databases compare case-insensitively like a list does."""

AT_ONCE = 1000
"""Entries of one query where a filter may drop some. Source: a choice; some milliseconds."""

COMMAND_LINE = "command line"
"""Caller of changes by commands, which need no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord(Documented):
    """A requested change."""

    number: int
    """Its number; later ones are higher."""
    at: str
    """When, in UTC."""
    caller: str | None
    """Who: public part of the key, subject of the token, or command line; null where the service asked for no key."""
    owner: str
    """Owner of the key or the token."""
    operation: str
    """What was asked for: the operation as /openapi.json calls it, or the command."""
    object: str | None
    """Object of the change; null where its name came in no form that may be stored."""
    outcome: AuditOutcome
    """Whether it was: done, forbidden, not_found, conflict or stale."""
    request_id: str | None
    """Id of the request, as answers and logs tell it; null for a command."""


COLUMNS: tuple[Column, ...] = columns_of(AuditRecord)


def listed_audit(engine: Engine) -> Listed:
    return Listed(COLUMNS, (), sort=NEWEST_FIRST, find=partial(_found, engine))


def by_command(operation: str) -> AbstractContextManager[None]:
    """Attribute the changes inside to a command."""
    return auditing(AuditedCall(caller=COMMAND_LINE, owner=TEAM, operation=operation))


def _found(engine: Engine, query: ListQuery, most: int | None) -> list[AuditRecord]:
    """Find the entries of a query; in the order of numbers read no more than needed."""
    by = [(column.name, descends) for column, descends in query.order.by[:1]]
    if by and by[0][0] != NUMBER:
        return query.select(_entries(engine, query, AuditPart(most=AT_ONCE)), most)
    after = query.after[-1] if query.after else None
    before_number = after if type(after) is int and abs(after) <= LARGEST_NUMBER else None
    is_exact = all(column.name in IN_ASCII for column, _ in query.filters)
    at_once = most if is_exact and most is not None else AT_ONCE  # a page if no filter can drop an entry
    part = AuditPart(behind=before_number, newest_first=by == [(NUMBER, True)], most=at_once)
    return [*islice(query.admitted(_entries(engine, query, part)), most)]


def _entries(engine: Engine, query: ListQuery, part: AuditPart) -> Iterator[AuditRecord]:
    among = {
        column.name: frozenset(value for value in values if value is None or isinstance(value, str))
        for column, values in query.filters
        if column.name in IN_ASCII
    }
    part = replace(part, among=among)
    while entries := read_audit(engine, part):
        for entry in entries:
            yield AuditRecord(
                **asdict(entry.call),
                number=entry.number,
                at=utc_text(entry.at),
                object=entry.object,
                outcome=entry.outcome,
            )
        if len(entries) < part.most:
            return
        part = replace(part, behind=entries[-1].number)
