"""The log of changes of the catalogue, the newest first, each with the revision that answers name from then on."""

from dataclasses import dataclass

from service.store import Change, History, utc_text
from service.workflows.callers import Caller
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
    """Digest of what the caller sees of the catalogue after it: what answers name as versions.catalogue, and `rev` asks
    for."""
    owner: str
    """Who made it: catalogue for what a version of the service ships, else a team."""
    summary: str
    """What was changed."""


COLUMNS = columns_of(Revision)


def listed_revisions(history: History, caller: Caller) -> Listed:
    """The changes of what a caller sees of the catalogue.

    Args:
        history: the catalogue over time
        caller: who asks; to an admin the changes of every owner's private rows are listed too

    Returns:
        its rows and how they are asked for

    Raises:
        Unreachable: the database does not answer
    """
    return Listed(COLUMNS, map(_revision, history.changes(caller.owner, of_all=caller.sees_all)), sort=NEWEST_FIRST)


def _revision(change: Change) -> Revision:
    return Revision(
        number=change.number,
        made_at=utc_text(change.made_at),
        catalogue=change.catalogue,
        owner=change.owner,
        summary=change.summary,
    )
