"""Share links as a table for a terminal."""

from collections.abc import Sequence

from service.workflows.accuracy.table_cells import aligned
from service.workflows.listed import Record

HEADS = ("id", "status", "scenario", "made_by", "created_at", "expires_at", "revoked_at", "last_used_at")


def shares_report(shares: Sequence[Record], place: str) -> str:
    """A line for each link under a header; a sentence where there are none in the database at a place."""
    rows = [["-" if share[head] is None else str(share[head]) for head in HEADS] for share in shares]
    return "\n".join(aligned([HEADS, *rows])) if rows else f"no share links in {place}"
