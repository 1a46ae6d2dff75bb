"""Who changed what? The audit log as a list, the newest first."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from service.estimator.noun import SPOKEN
from service.store import AuditOutcome, Deed, Engine, KeptEntry, acting_as, read_audit, utc_text
from service.workflows.callers import TEAM
from service.workflows.columns import Column, columns_of
from service.workflows.listed import Listed

NEWEST_FIRST = "-number"

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
    """The audit log.

    Args:
        engine: the database

    Returns:
        its rows and how they are asked for

    Raises:
        Unreachable: the database does not answer
    """
    return Listed(COLUMNS, map(_record, read_audit(engine)), sort=NEWEST_FIRST)


def by_command(operation: str) -> AbstractContextManager[None]:
    """Say that whoever typed a command answers for what is written inside.

    Args:
        operation: what the command does

    Returns:
        the context of what it writes
    """
    return acting_as(Deed(caller=COMMAND_LINE, owner=TEAM, operation=operation))


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
