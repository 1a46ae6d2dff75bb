"""How is a page of a long list found without reading all of it? From the database, some rows at a time.

That works in two orders: by key, and the newest first. In any other, every row is read.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from service.store import RowPart, utc_text
from service.workflows.columns import Column
from service.workflows.list_query import ListQuery
from service.workflows.listed import Listed

AT_ONCE = 1000
"""Rows that are read at once where not all of them may be shown. Source: a choice; some milliseconds."""
TIMES_AS_MANY = 8
"""As are read at once where all that was read is of one second. Source: a choice."""
SECOND = timedelta(seconds=1)

Read = Callable[[RowPart | None], Sequence[Any]]
"""Rows of a part of the list; all of them, in no order, where it is None."""


def listed_in_parts(
    columns: Sequence[Column], read: Read, moment: str = "created_at", sort: str | None = None
) -> Listed:
    """A list that the database holds.

    Args:
        columns: its columns, the key first
        read: reads its rows
        moment: name of the column that tells how old a row is, to the second
        sort: how its rows stand where the caller does not say; None for the order of the keys

    Returns:
        the list
    """
    return Listed(columns, (), sort=sort, find=partial(_found, read, moment))


def _found(read: Read, moment: str, query: ListQuery, most: int | None) -> list[Any]:
    begin = None if most is None else _begin(moment, query, AT_ONCE if query.filters else most)
    if begin is None:
        return query.select(read(None), most)
    rows: Iterator[Any]
    if begin.newest_first:
        rows = (row for second in _by_seconds(read, begin, query.order.by[0][0]) for row in query.order.sorted(second))
    else:
        rows = _by_keys(read, begin, query.order.key)
    return [*islice(query.admitted(rows), most)]


def _begin(moment: str, query: ListQuery, most: int) -> RowPart | None:
    """The part where a page begins; None where the database does not know the order, or the place."""
    by = [(column.name, descends) for column, descends in query.order.by]
    after = query.after
    if not by:
        if after is None:
            return RowPart(most=most)
        key = after[-1]
        return RowPart(most=most, behind=key) if isinstance(key, str) and key.isascii() and key.isprintable() else None
    if by != [(moment, True)]:
        return None
    if after is None:
        return RowPart(most=most, newest_first=True)
    with suppress(ValueError, OverflowError):
        return RowPart(most=most, newest_first=True, before=_behind(str(after[0]).upper()))
    return None


def _by_keys(read: Read, part: RowPart, key: Column) -> Iterator[Any]:
    """Rows in the order of their keys."""
    while rows := read(part):
        yield from rows
        if len(rows) < part.most:
            return
        part = RowPart(most=part.most, behind=key.value(rows[-1]))


def _by_seconds(read: Read, part: RowPart, moment: Column) -> Iterator[Sequence[Any]]:
    """Rows of whole seconds, the newest first: within one, the database's order is not that of the list.

    SQLite compares moments as texts, of which the database writes three digits and Python six, so that it may give rows
    of the very moment before which they are wanted.
    """
    while True:
        rows = read(part)
        wanted = rows if part.before is None else [row for row in rows if moment.value(row) < utc_text(part.before)]
        if len(rows) < part.most:
            yield wanted
            return
        last = moment.value(wanted[-1]) if wanted else None
        whole = [row for row in wanted if moment.value(row) != last]
        if whole:
            yield whole
            part = RowPart(most=part.most, newest_first=True, before=_behind(str(last)))
        else:
            part = RowPart(most=TIMES_AS_MANY * part.most, newest_first=True, before=part.before)


def _behind(text: str) -> datetime:
    """The end of the second that a moment is told to.

    Raises:
        ValueError: it is told otherwise
        OverflowError: there is none after it
    """
    known = datetime.fromisoformat(text)
    if utc_text(known) != text:
        raise ValueError("a moment of a list is told in UTC, to the second")
    return known + SECOND
