"""Audit log: every change as a list, newest first."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from service.estimator.names import SPOKEN
from service.store import AuditOutcome, AuditPart, Deed, Engine, KeptEntry, acting_as, read_audit, utc_text
from service.store.keys import TEAM
from service.tabular.columns import Column, columns_of
from service.tabular.lists import Listed
from service.tabular.queries import Form, ListQuery

NEWEST_FIRST = "-number"

NUMBER = "number"
LARGEST_NUMBER = 2**31 - 1
"""Of an entry; no other is asked for, whatever a cursor says."""

IN_ASCII = frozenset(("operation", "object", "outcome", "request_id"))
"""Columns whose texts both databases compare without regard to capitals as a list does."""

AT_ONCE = 1000
"""Entries that are read at once where not all of them may be shown. Source: a choice; some milliseconds."""

COMMAND_LINE = "command line"
"""Who made a change where the database itself was reached, without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A change that somebody asked for."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

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
    """What was to be changed; null where its name was told in no form that may be kept."""
    outcome: AuditOutcome
    """Whether it was: done, forbidden, not_found, conflict or stale."""
    request_id: str | None
    """Id of the request, as answers and logs tell it; null for a command."""


COLUMNS: tuple[Column, ...] = columns_of(AuditRecord)
"""Columns of the list, the key first."""


def listed_audit(engine: Engine) -> Listed:
    """The audit log."""
    return Listed(COLUMNS, (), sort=NEWEST_FIRST, find=partial(_found, engine))


def by_command(operation: str) -> AbstractContextManager[None]:
    """Say that whoever typed a command answers for what is written inside."""
    return acting_as(Deed(caller=COMMAND_LINE, owner=TEAM, operation=operation))


def _found(engine: Engine, query: ListQuery, most: int | None) -> list[AuditRecord]:
    """The entries that a query asks for: in the order of their numbers no more are read than it takes to find them."""
    by = [(column.name, descends) for column, descends in query.order.by[:1]]
    if by and by[0][0] != NUMBER:
        return query.select(_entries(engine, query, AuditPart(most=AT_ONCE)), most)
    after = query.after[-1] if query.after else None
    behind = after if type(after) is int and abs(after) <= LARGEST_NUMBER else None
    part = AuditPart(behind=behind, newest_first=by == [(NUMBER, True)], most=_at_once(query, most))
    return [*islice(query.admitted(_entries(engine, query, part)), most)]


def _entries(engine: Engine, query: ListQuery, part: AuditPart) -> Iterator[AuditRecord]:
    """Entries among which are all that a query admits, read some at a time."""
    among = {column.name: _texts(wanted) for column, wanted in query.filters if column.name in IN_ASCII}
    part = replace(part, among=among)
    while found := read_audit(engine, part):
        yield from map(_record, found)
        if len(found) < part.most:
            return
        part = replace(part, behind=found[-1].number)


def _at_once(query: ListQuery, most: int | None) -> int:
    """A page where each entry that is read stands on it, and many where some may not."""
    is_told = all(column.name in IN_ASCII for column, _ in query.filters)
    return most if is_told and most is not None else AT_ONCE


def _texts(wanted: Iterable[Form]) -> frozenset[str | None]:
    return frozenset(form for form in wanted if form is None or isinstance(form, str))


def _record(entry: KeptEntry) -> AuditRecord:
    return AuditRecord(
        number=entry.number,
        at=utc_text(entry.at),
        caller=entry.deed.caller,
        owner=entry.deed.owner,
        operation=entry.deed.operation,
        object=entry.object,
        outcome=entry.outcome,
        request_id=entry.deed.request_id,
    )
