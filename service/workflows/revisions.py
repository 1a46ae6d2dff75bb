"""Under which catalogue was an answer given, and what changed since? The log of changes, the newest first."""

from dataclasses import dataclass

from service.store import Change, History, utc_text
from service.workflows.columns import columns_of
from service.workflows.listed import Listed

NEWEST_FIRST = "-number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of the catalogue."""

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


COLUMNS = columns_of(Revision)


def listed_revisions(history: History) -> Listed:
    """The changes of the catalogue.

    Args:
        history: the catalogue over time

    Returns:
        its rows and how they are asked for

    Raises:
        Unreachable: the database does not answer
    """
    return Listed(COLUMNS, map(_revision, history.changes()), sort=NEWEST_FIRST)


def _revision(change: Change) -> Revision:
    return Revision(
        number=change.number,
        made_at=utc_text(change.made_at),
        catalogue=change.catalogue,
        owner=change.owner,
        summary=change.summary,
    )
