"""Under which catalogue was an answer given, and what changed since? The log of changes, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, ClassVar

from service.errors import Problem, Refused
from service.store import Change, History
from service.workflows.estimates import SPOKEN
from service.workflows.list_query import DEFAULT_ROWS, cursor_after, read_list_query

LARGEST_NUMBER = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of the catalogue."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    number: int
    """Its number, from 1 without a gap."""
    made_at: str
    """When it was made, RFC 3339 in UTC."""
    catalogue: str
    """Digest of the whole catalogue after it: what answers name as versions.catalogue, and `rev` asks for."""
    owner: str
    """Who made it: catalogue for what a version of the service ships, else a team."""
    summary: str
    """What was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionPage:
    """Some changes of the catalogue, the newest first."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    items: tuple[Revision, ...]
    """The changes."""
    next_cursor: str | None
    """Where the next page begins, for `cursor`; null after the first change."""


def list_revisions(history: History, parameters: Sequence[tuple[str, str]]) -> RevisionPage:
    """One page of the changes of the catalogue.

    Args:
        history: the catalogue over time
        parameters: the query string: limit, cursor

    Returns:
        the page

    Raises:
        Refused: an unknown parameter or a wrong value
        Unreachable: the database does not answer
    """
    query = read_list_query(parameters, (), {})
    limit = query.limit or DEFAULT_ROWS
    found = history.changes(limit + 1, _number(query.after) if query.after else None)
    shown = found[:limit]
    more = cursor_after(str(shown[-1].number)) if len(found) > limit else None
    return RevisionPage(items=tuple(map(_revision, shown)), next_cursor=more)


def _revision(change: Change) -> Revision:
    return Revision(
        number=change.number,
        made_at=change.made_at.astimezone(UTC).isoformat(),
        catalogue=change.catalogue,
        owner=change.owner,
        summary=change.summary,
    )


def _number(key: str) -> int:
    if key.isascii() and key.isdigit() and int(key) <= LARGEST_NUMBER:
        return int(key)
    message = "cursor is none that this list gave out, so it leads to no page"
    raise Refused(Problem(field="cursor", code="invalid", message=message, fix="give next_cursor of the page before"))
