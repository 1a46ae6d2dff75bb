"""Which keys are there, and when was each last used? Rows are added and marked, never removed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Literal

from sqlalchemy import Connection, Engine, bindparam, func, insert, or_, select, update

from service.errors import Unreachable
from service.store.audit import note_in
from service.store.engine import NO_ANSWER, answering, reading, writing
from service.store.queries import in_utc
from service.store.share_links import LINKS, UNLISTED_LINKS, make_signing_secret, signing_secrets_in, write_link_uses_in
from service.store.tables import API_KEYS

Scope = Literal["read", "write", "worker", "admin", "sheet"]


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
    """Keep a new key."""
    with answering(), writing(engine) as connection:
        connection.execute(insert(API_KEYS), asdict(key))
        note_in(connection, key.id)


def revoke_key(engine: Engine, key_id: str, moment: datetime) -> datetime | None:
    """Mark a key as revoked; one that is revoked already stays as it is, and nothing is noted."""
    is_meant, revoked_at = API_KEYS.c.id == key_id, API_KEYS.c.revoked_at
    with answering(), writing(engine) as connection:
        done = connection.execute(update(API_KEYS).where(is_meant, revoked_at.is_(None)).values(revoked_at=moment))
        if done.rowcount:
            note_in(connection, key_id)
            return moment
        return in_utc(connection.execute(select(revoked_at).where(is_meant)).scalar())


def limit_key(engine: Engine, key_id: str, requests_per_minute: int | None, request_burst: int | None) -> bool:
    """Give a key other limits."""
    limits = {"requests_per_minute": requests_per_minute, "request_burst": request_burst}
    values = {**limits, "limit_changes": API_KEYS.c.limit_changes + 1}
    with answering(), writing(engine) as connection:
        done = connection.execute(update(API_KEYS).where(API_KEYS.c.id == key_id).values(values))
        if done.rowcount:
            note_in(connection, key_id)
    return done.rowcount == 1


def read_keys(engine: Engine) -> list[ApiKey]:
    """Every key, the oldest first."""
    with answering(), reading(engine) as connection:
        return keys_in(connection)


def keys_in(connection: Connection) -> list[ApiKey]:
    """Every key, the oldest first."""
    found = connection.execute(select(API_KEYS).order_by(API_KEYS.c.created_at, API_KEYS.c.id)).mappings()
    return [_key(row) for row in found]


def state_in(connection: Connection) -> tuple[Any, ...]:
    """What differs whenever a key was made, limited or revoked: cheaper to look at than the keys."""
    made, revoked = API_KEYS.c.created_at, API_KEYS.c.revoked_at
    limited = func.sum(API_KEYS.c.limit_changes)
    query = select(func.count(), func.max(made), func.count(revoked), func.max(revoked), limited).select_from(API_KEYS)
    return tuple(connection.execute(query).one())


def write_uses(engine: Engine, used: Mapping[str, datetime]) -> None:
    """Keep when keys were last used, unless another process knows of a later moment."""
    last = API_KEYS.c.last_used_at
    marking = update(API_KEYS).where(API_KEYS.c.id == bindparam("key"), or_(last.is_(None), last < bindparam("moment")))
    given = [{"key": key_id, "moment": moment} for key_id, moment in sorted(used.items())]
    with answering(), writing(engine) as connection:
        connection.execute(marking.values(last_used_at=bindparam("moment")), given)


def _key(row: Mapping[Any, Any]) -> ApiKey:
    moments = {name: in_utc(row[name]) for name in ("created_at", "expires_at", "revoked_at", "last_used_at")}
    return ApiKey(**{**row, **moments, "scopes": tuple(row["scopes"])})


TEAM = "team"
"""Owner of what is made where callers are not told apart: without keys, and by keys that name no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who was let in."""

    id: str = ""
    """Public part of the key, or subject of the token; empty where the service asks for none."""
    owner: str = TEAM
    """Whose is what they make."""
    sees_all: bool = False
    """Whether what others own is theirs to see and to change too."""

    is_shared: bool = False
    """Whether its workers take the jobs of every owner, whatever its own: so do those with a token."""

    @property
    def works_for(self) -> str | None:
        """Owner whose jobs alone its workers take; None for those of every owner."""
        return None if self.sees_all or self.is_shared or self.owner == TEAM else self.owner

    @property
    def whose(self) -> str | None:
        """Owner of all that they see and may change; None for whoever it belongs to."""
        return None if self.sees_all else self.owner

    @property
    def own(self) -> str | None:
        """Owner of what counts as theirs where they name nothing; None where callers are not told apart."""
        return None if self == ANYBODY else self.owner

    def reaches(self, owner: str) -> bool:
        """Whether something is theirs to see and to change.

        >>> Caller(owner="a").reaches("b"), Caller(owner="b").reaches("b"), Caller(sees_all=True).reaches("b")
        (False, True, True)
        """
        return self.sees_all or owner == self.owner


ANYBODY = Caller(sees_all=True)
"""Whoever asks a service that asks for no keys."""


USES_APART = timedelta(minutes=1)
"""Shortest time between two notes that a key was used."""

SEPARATOR = "."
"""Stands between the public part of a key and its secret part."""

_NOBODY = ApiKey(
    id="", name="", owner="", scopes=(), digest=bytes(sha256().digest_size), created_at=datetime.min.replace(tzinfo=UTC)
)
"""What stands in the place of an unknown key, so that its secret is compared as that of a known one is."""


class KeyRing:
    """The keys of the service, and what it signs links with."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._keys: Mapping[str, ApiKey] = {}
        self._state: tuple[Any, ...] = ()
        self._lent: dict[str, ApiKey] = {}
        self._known: Mapping[str, ApiKey] = {}
        self._is_locked = False
        self._used: dict[str, datetime] = {}
        self._noted: dict[str, datetime] = {}
        self._opened: dict[str, datetime] = {}
        self._links_noted: dict[str, datetime] = {}
        self.signing_secret: bytes | None = None
        self.unlisted_secret: bytes | None = None
        """What links of earlier versions are signed with; None where none of them holds."""
        self.refresh()

    @property
    def is_locked(self) -> bool:
        """Whether callers need a key: from the first on, also where all are revoked or a restored backup has none."""
        return self._is_locked

    def find(self, presented: str) -> ApiKey | None:
        """The key that a caller presents."""
        key_id, _, secret = presented.partition(SEPARATOR)
        key = self._known.get(key_id, _NOBODY)
        is_right = compare_digest(sha256(secret.encode(errors="replace")).digest(), key.digest)
        return key if is_right and key is not _NOBODY else None

    def known(self, key_id: str) -> ApiKey | None:
        """The key of a public part as it is now, revoked or not; None where there is none."""
        return self._known.get(key_id)

    def lend(self, key: ApiKey) -> None:
        """Let a key in for as long as this process runs; it is kept in memory alone, and locks nothing."""
        self._lent[key.id] = key
        self._known = {**self._keys, **self._lent}

    def note_use(self, key: ApiKey, moment: datetime) -> None:
        """Remember that a key was used; it is written later."""
        if key.id not in self._lent:
            self._used[key.id] = moment

    def refresh(self) -> None:
        """Take over which keys other processes made, limited and revoked."""
        if self._engine is None:
            return
        with answering(), reading(self._engine) as connection:
            state = state_in(connection)
            if state != self._state:
                self._keys, self._state = {key.id: key for key in keys_in(connection)}, state
                self._known = {**self._keys, **self._lent}
                self._is_locked = self._is_locked or bool(self._keys)  # nothing that goes on opens what was locked
            secrets = signing_secrets_in(connection)
            self.signing_secret, self.unlisted_secret = secrets.get(LINKS), secrets.get(UNLISTED_LINKS)

    def make_signing_secret(self) -> bytes:
        """What links are signed with, made where there is nothing yet."""
        if self.signing_secret is None:
            if self._engine is None:
                raise Unreachable(NO_ANSWER)
            self.signing_secret = make_signing_secret(self._engine)
        return self.signing_secret

    def note_opening(self, link_id: str, moment: datetime) -> None:
        """Remember that a share link was opened; it is written later."""
        self._opened[link_id] = moment

    def write_uses(self, *, all_of_them: bool = False) -> None:
        """Write when keys and share links were last used: of each at most once a minute."""
        due = _due(self._used, self._noted, all_of_them=all_of_them)
        opened = _due(self._opened, self._links_noted, all_of_them=all_of_them)
        if self._engine is None:
            return
        if due:
            write_uses(self._engine, due)
            self._noted = {**self._noted, **due}
        if opened:
            with answering(), writing(self._engine) as connection:
                write_link_uses_in(connection, opened)
            self._links_noted = {**self._links_noted, **opened}


def _due(used: dict[str, datetime], noted: Mapping[str, datetime], *, all_of_them: bool) -> dict[str, datetime]:
    """Moments that are to be written."""
    return {
        name: moment
        for name, moment in used.copy().items()
        if name not in noted or (moment > noted[name] and (all_of_them or moment - noted[name] >= USES_APART))
    }
