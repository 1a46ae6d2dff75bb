"""Terminal tables of API keys and share links."""

from collections.abc import Collection, Sequence

from service.cli.console import table
from service.store.keys import Scope
from service.tabular.lists import Record

HEADS = (
    "id", "standing", "scopes", "owner", "name", "created_at", "expires_at", "last_used_at", "requests_per_minute",
    "request_burst",
)  # fmt: skip
"""Columns of the table that people read."""


def sent_as(scopes: Collection[Scope]) -> str:
    """How a key is sent, by what it allows."""
    ways = ["Send it as Authorization: Bearer KEY."]
    if set(scopes) == {"sheet"}:
        ways.append("A sheet sends it in the address of a cell: key=KEY.")
    if "worker" in scopes:
        ways.append("A worker takes it from TRAINCOST_TOKEN.")
    return " ".join(ways)


def keys_report(keys: Sequence[Record], place: str) -> str:
    """Keys as a person reads them in a terminal."""
    rows = [[_cell(key[head]) for head in HEADS] for key in keys]
    return "\n".join(table([HEADS, *rows])) if rows else f"no keys in {place}: traincost keys create makes one"


def _cell(value: object) -> str:
    return "-" if value is None else " ".join(value) if isinstance(value, tuple) else str(value)


SHARE_HEADS = ("id", "status", "scenario", "made_by", "created_at", "expires_at", "revoked_at", "last_used_at")


def shares_report(shares: Sequence[Record], place: str) -> str:
    """A line for each link under a header; a sentence where there are none in the database at a place."""
    rows = [["-" if share[head] is None else str(share[head]) for head in SHARE_HEADS] for share in shares]
    return "\n".join(table([SHARE_HEADS, *rows])) if rows else f"no share links in {place}"
