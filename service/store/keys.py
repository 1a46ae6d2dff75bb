"""Which keys are there, and when was each last used? Rows are added and marked, never removed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Engine, bindparam, func, insert, or_, select, update

from service.store.audit import note_in
from service.store.engine import answering, reading, writing
from service.store.key_tables import API_KEYS

Scope = Literal["read", "write", "worker", "admin", "sheet"]
Moment = TypeVar("Moment", datetime, datetime | None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What is kept of a key."""

    id: str
    """Its public part, which may stand in any list."""
    name: str
    """What it is for."""
    owner: str
    """Whose it is."""
    scopes: tuple[Scope, ...]
    """What it allows."""
    digest: bytes = field(repr=False)
    """SHA-256 of its secret part."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime | None = None
    """From when on it is refused; None for never."""
    revoked_at: datetime | None = None
    """When it was revoked; None where it was not."""
    last_used_at: datetime | None = None
    """When it was last used, to a minute; None where it never was."""
    requests_per_minute: int | None = None
    """Requests that it may send in a minute in the long run, 0 for any number; None for what the service says."""
    request_burst: int | None = None
    """Requests that it may send at once after a pause; None for what the service says."""
    limit_changes: int = 0
    """How often these limits were changed."""


def create_key(engine: Engine, key: ApiKey) -> None:
    """Keep a new key.

    Args:
        engine: the database
        key: the key

    Raises:
        Unreachable: the database does not answer
    """
    with answering(), writing(engine) as connection:
        connection.execute(insert(API_KEYS), asdict(key))
        note_in(connection, key.id)


def revoke_key(engine: Engine, key_id: str, moment: datetime) -> datetime | None:
    """Mark a key as revoked; one that is revoked already stays as it is, and nothing is noted.

    Args:
        engine: the database
        key_id: its public part
        moment: when it is revoked

    Returns:
        since when it is; None where there is no such key

    Raises:
        Unreachable: the database does not answer
    """
    is_meant, revoked_at = API_KEYS.c.id == key_id, API_KEYS.c.revoked_at
    with answering(), writing(engine) as connection:
        done = connection.execute(update(API_KEYS).where(is_meant, revoked_at.is_(None)).values(revoked_at=moment))
        if done.rowcount:
            note_in(connection, key_id)
            return moment
        return _in_utc(connection.execute(select(revoked_at).where(is_meant)).scalar())


def limit_key(engine: Engine, key_id: str, requests_per_minute: int | None, request_burst: int | None) -> bool:
    """Give a key other limits.

    Args:
        engine: the database
        key_id: its public part
        requests_per_minute: requests in a minute in the long run, 0 for any number; None for what the service says
        request_burst: requests at once; None for what the service says

    Returns:
        whether there is such a key

    Raises:
        Unreachable: the database does not answer
    """
    limits = {"requests_per_minute": requests_per_minute, "request_burst": request_burst}
    values = {**limits, "limit_changes": API_KEYS.c.limit_changes + 1}
    with answering(), writing(engine) as connection:
        done = connection.execute(update(API_KEYS).where(API_KEYS.c.id == key_id).values(values))
        if done.rowcount:
            note_in(connection, key_id)
    return done.rowcount == 1


def read_keys(engine: Engine) -> list[ApiKey]:
    """Every key, the oldest first.

    Args:
        engine: the database

    Returns:
        the keys

    Raises:
        Unreachable: the database does not answer
    """
    with answering(), reading(engine) as connection:
        return keys_in(connection)


def keys_in(connection: Connection) -> list[ApiKey]:
    """Every key, the oldest first.

    Args:
        connection: the database

    Returns:
        the keys
    """
    found = connection.execute(select(API_KEYS).order_by(API_KEYS.c.created_at, API_KEYS.c.id)).mappings()
    return [_key(row) for row in found]


def state_in(connection: Connection) -> tuple[Any, ...]:
    """What differs whenever a key was made, limited or revoked: cheaper to look at than the keys.

    Args:
        connection: the database

    Returns:
        numbers and newest moments, to be compared
    """
    made, revoked = API_KEYS.c.created_at, API_KEYS.c.revoked_at
    limited = func.sum(API_KEYS.c.limit_changes)
    query = select(func.count(), func.max(made), func.count(revoked), func.max(revoked), limited).select_from(API_KEYS)
    return tuple(connection.execute(query).one())


def write_uses(engine: Engine, used: Mapping[str, datetime]) -> None:
    """Keep when keys were last used, unless another process knows of a later moment.

    Args:
        engine: the database
        used: moments by the public part of the key

    Raises:
        Unreachable: the database does not answer
    """
    last = API_KEYS.c.last_used_at
    marking = update(API_KEYS).where(API_KEYS.c.id == bindparam("key"), or_(last.is_(None), last < bindparam("moment")))
    given = [{"key": key_id, "moment": moment} for key_id, moment in sorted(used.items())]
    with answering(), writing(engine) as connection:
        connection.execute(marking.values(last_used_at=bindparam("moment")), given)


def _key(row: Mapping[Any, Any]) -> ApiKey:
    moments = {name: _in_utc(row[name]) for name in ("created_at", "expires_at", "revoked_at", "last_used_at")}
    return ApiKey(**{**row, **moments, "scopes": tuple(row["scopes"])})


def _in_utc(moment: Moment) -> Moment:
    """A moment that says that it is in UTC, for SQLite does not."""
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
