"""API keys, their callers, share links of scenarios, and the key ring in memory, which authenticates every request."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from secrets import token_bytes
from threading import Event
from typing import Any, Literal

import sqlalchemy as sa

from service.errors import Unreachable
from service.store.engine import NO_ANSWER, answering, in_utc, insert_new, reading, row_as, writing
from service.store.requests import log_change_in
from service.store.tables import API_KEYS, SERVER_SECRETS, SHARE_LINKS

LINKS = "listed share links"
UNLISTED_LINKS = "share links"
"""Name of the signing secret of earlier versions, whose links have no row; they are valid only while it exists."""
SECRET_BYTES = 32


def signing_secrets_in(connection: sa.Connection) -> Mapping[str, bytes]:
    """The current and former signing secrets of links, by name."""
    query = sa.select(SERVER_SECRETS.c.name, SERVER_SECRETS.c.secret)
    return {name: secret for name, secret in connection.execute(query) if name in {LINKS, UNLISTED_LINKS}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLink:
    """A link that shows one scenario."""

    id: str
    scenario_id: str
    made_by: str | None
    """Public part of the key, or subject of the token, that created it; None where the service required none."""
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    """Revocation of the link or of its key, whichever came first."""
    last_used_at: datetime | None = None


def create_share_link(engine: sa.Engine, link: ShareLink, most: int) -> bool:
    """Store a new link; false if its scenario already has `most` links that have not ended."""
    of_scenario = SHARE_LINKS.c.scenario_id == link.scenario_id
    ended = sa.or_(SHARE_LINKS.c.revoked_at.is_not(None), SHARE_LINKS.c.expires_at <= link.created_at)
    counted = sa.select(sa.func.count()).select_from(SHARE_LINKS).where(of_scenario)
    with answering(), writing(engine) as connection:
        if connection.execute(counted).scalar_one() >= most:
            connection.execute(sa.delete(SHARE_LINKS).where(of_scenario, ended))
            if connection.execute(counted).scalar_one() >= most:
                return False
        connection.execute(sa.insert(SHARE_LINKS), asdict(link))
        log_change_in(connection, f"{link.scenario_id}/{link.id}")
    return True


def read_share_links(engine: sa.Engine, scenario_id: str | None = None) -> list[ShareLink]:
    """The links of a scenario, or of all, oldest first."""
    return _links(engine, *([] if scenario_id is None else [SHARE_LINKS.c.scenario_id == scenario_id]))


def read_share_link(engine: sa.Engine, link_id: str) -> ShareLink | None:
    """The link with an id; None if there is none."""
    return next(iter(_links(engine, SHARE_LINKS.c.id == link_id)), None)


def _links(engine: sa.Engine, *conditions: sa.ColumnElement[bool]) -> list[ShareLink]:
    """Links, oldest first, each revoked with its key."""
    query = sa.select(SHARE_LINKS, API_KEYS.c.revoked_at.label("key_revoked_at")).join_from(
        SHARE_LINKS, API_KEYS, SHARE_LINKS.c.made_by == API_KEYS.c.id, isouter=True
    )
    query = query.where(*conditions).order_by(SHARE_LINKS.c.created_at, SHARE_LINKS.c.id)
    links = []
    with answering(), reading(engine) as connection:
        for row in connection.execute(query).mappings():
            revoked = [moment for moment in (row["revoked_at"], row["key_revoked_at"]) if moment]
            links.append(row_as(ShareLink, row, revoked_at=min(revoked, default=None)))
    return links


def revoke_share_link(engine: sa.Engine, link_id: str, moment: datetime, scenario_id: str | None = None) -> bool:
    """Revoke a link; a revoked one stays as it is."""
    matches = [SHARE_LINKS.c.id == link_id]
    if scenario_id is not None:
        matches.append(SHARE_LINKS.c.scenario_id == scenario_id)
    with answering(), writing(engine) as connection:
        scenario = connection.execute(sa.select(SHARE_LINKS.c.scenario_id).where(*matches)).scalar_one_or_none()
        if scenario is None:
            return False
        update = sa.update(SHARE_LINKS).where(*matches, SHARE_LINKS.c.revoked_at.is_(None))
        if connection.execute(update.values(revoked_at=moment)).rowcount:
            log_change_in(connection, f"{scenario}/{link_id}")
    return True


def revoke_unlisted_links(engine: sa.Engine) -> bool:
    """Revoke every link without a row; false if none was valid."""
    with answering(), writing(engine) as connection:
        deleted = connection.execute(sa.delete(SERVER_SECRETS).where(SERVER_SECRETS.c.name == UNLISTED_LINKS)).rowcount
        if deleted:
            log_change_in(connection, "unlisted")
    return bool(deleted)


Scope = Literal["read", "write", "worker", "admin", "sheet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    id: str
    """The public part."""
    name: str
    owner: str
    scopes: tuple[Scope, ...]
    digest: bytes = field(repr=False)
    """SHA-256 of the secret part."""
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    requests_per_minute: int | None = None
    """Sustained rate, 0 for unlimited; None for the service's setting."""
    request_burst: int | None = None
    """Requests at once after a pause; None for the service's setting."""
    limit_changes: int = 0


def create_key(engine: sa.Engine, key: ApiKey) -> None:
    with answering(), writing(engine) as connection:
        connection.execute(sa.insert(API_KEYS), asdict(key))
        log_change_in(connection, key.id)


def revoke_key(engine: sa.Engine, key_id: str, moment: datetime) -> datetime | None:
    """Revoke a key; a revoked one stays as it is, and nothing is logged."""
    matches, revoked_at = API_KEYS.c.id == key_id, API_KEYS.c.revoked_at
    with answering(), writing(engine) as connection:
        done = connection.execute(sa.update(API_KEYS).where(matches, revoked_at.is_(None)).values(revoked_at=moment))
        if done.rowcount:
            log_change_in(connection, key_id)
            return moment
        return in_utc(connection.execute(sa.select(revoked_at).where(matches)).scalar())


def limit_key(engine: sa.Engine, key_id: str, requests_per_minute: int | None, request_burst: int | None) -> bool:
    limits = {"requests_per_minute": requests_per_minute, "request_burst": request_burst}
    values = {**limits, "limit_changes": API_KEYS.c.limit_changes + 1}
    with answering(), writing(engine) as connection:
        done = connection.execute(sa.update(API_KEYS).where(API_KEYS.c.id == key_id).values(values))
        if done.rowcount:
            log_change_in(connection, key_id)
    return done.rowcount == 1


def read_keys(engine: sa.Engine) -> list[ApiKey]:
    """Every key, oldest first."""
    with answering(), reading(engine) as connection:
        return keys_in(connection)


def keys_in(connection: sa.Connection) -> list[ApiKey]:
    """Every key, oldest first."""
    rows = connection.execute(sa.select(API_KEYS).order_by(API_KEYS.c.created_at, API_KEYS.c.id)).mappings()
    return [row_as(ApiKey, row) for row in rows]


TEAM = "team"
"""Owner where callers are not distinguished: without keys, and for keys without an owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    id: str = ""
    """Public part of the key, or subject of the token; empty where the service requires none."""
    owner: str = TEAM
    """Owner of what the caller creates."""
    sees_all: bool = False
    """Whether the caller may read and change what others own."""

    is_shared: bool = False
    """Whether its workers take jobs of every owner; true for tokens."""

    @property
    def works_for(self) -> str | None:
        """The only owner whose jobs its workers take; None for every owner."""
        return None if self.sees_all or self.is_shared or self.owner == TEAM else self.owner

    @property
    def visible_owner(self) -> str | None:
        """Owner of all that the caller may read and change; None for all owners."""
        return None if self.sees_all else self.owner

    @property
    def own(self) -> str | None:
        """Owner of the caller's own objects; None where callers are not distinguished."""
        return None if self == UNRESTRICTED else self.owner

    def may_access(self, owner: str) -> bool:
        """Whether the caller may read and change what an owner has.

        >>> Caller(owner="a").may_access("b"), Caller(owner="b").may_access("b"), Caller(sees_all=True).may_access("b")
        (False, True, True)
        """
        return self.sees_all or owner == self.owner


UNRESTRICTED = Caller(sees_all=True)


USE_WRITE_INTERVAL = timedelta(minutes=1)

SEPARATOR = "."

_UNKNOWN_KEY = ApiKey(
    id="", name="", owner="", scopes=(), digest=bytes(sha256().digest_size), created_at=datetime.min.replace(tzinfo=UTC)
)
"""Stand-in for an unknown key, so that its comparison takes as long as that of a known one."""


class _Uses:
    """Moments at which rows were last used; each row is written once a minute at most."""

    def __init__(self, table: sa.Table) -> None:
        self._table = table
        self._used: dict[str, datetime] = {}
        self._written: dict[str, datetime] = {}

    def record(self, row_id: str, moment: datetime) -> None:
        self._used[row_id] = moment

    def write(self, engine: sa.Engine, *, all_of_them: bool) -> None:
        """Write the uses that are due, unless a later moment is stored."""
        due = {
            row_id: moment
            for row_id, moment in self._used.copy().items()
            if (written := self._written.get(row_id)) is None
            or (moment > written and (all_of_them or moment - written >= USE_WRITE_INTERVAL))
        }
        if not due:
            return
        last = self._table.c.last_used_at
        is_later = sa.or_(last.is_(None), last < sa.bindparam("moment"))
        update = sa.update(self._table).where(self._table.c.id == sa.bindparam("row"), is_later)
        moments = [{"row": row_id, "moment": moment} for row_id, moment in sorted(due.items())]
        with answering(), writing(engine) as connection:
            connection.execute(update.values(last_used_at=sa.bindparam("moment")), moments)
        self._written |= due


class KeyRing:
    """The keys of the service and its signing secrets, in memory."""

    def __init__(self, engine: sa.Engine | None) -> None:
        self._engine = engine
        self._keys: Mapping[str, ApiKey] = {}
        self._state: tuple[Any, ...] = ()
        self._temporary: dict[str, ApiKey] = {}
        self._known: Mapping[str, ApiKey] = {}
        self.is_locked = False
        """Whether callers need a key: true from the first key on, even if all are revoked or a backup has none."""
        self._key_uses, self._link_uses = _Uses(API_KEYS), _Uses(SHARE_LINKS)
        self.noted = Event()
        """Set when a use waits to be written."""
        self.signing_secret: bytes | None = None
        self.unlisted_secret: bytes | None = None
        """Signing secret of links of earlier versions; None if none of them is valid."""
        self.refresh()

    def find(self, presented: str) -> ApiKey | None:
        key_id, _, secret = presented.partition(SEPARATOR)
        key = self._known.get(key_id, _UNKNOWN_KEY)
        is_right = compare_digest(sha256(secret.encode(errors="replace")).digest(), key.digest)
        return key if is_right and key is not _UNKNOWN_KEY else None

    def known(self, key_id: str) -> ApiKey | None:
        """The key with a public part, revoked or not; None if there is none."""
        return self._known.get(key_id)

    def add_temporary(self, key: ApiKey) -> None:
        """Add a temporary key for the life of this process, in memory only; other callers still need no key."""
        self._temporary[key.id] = key
        self._known = {**self._keys, **self._temporary}

    def note_use(self, key: ApiKey, moment: datetime) -> None:
        """Record the use of a key; it is written later."""
        if key.id not in self._temporary:
            self._key_uses.record(key.id, moment)
            self.noted.set()

    def refresh(self) -> None:
        """Read keys that other processes created, limited and revoked."""
        if self._engine is None:
            return
        with answering(), reading(self._engine) as connection:
            made, revoked = API_KEYS.c.created_at, API_KEYS.c.revoked_at
            limited = sa.func.sum(API_KEYS.c.limit_changes)
            figures = sa.select(
                sa.func.count(), sa.func.max(made), sa.func.count(revoked), sa.func.max(revoked), limited
            )
            state = tuple(connection.execute(figures.select_from(API_KEYS)).one())
            if state != self._state:  # it differs after any change of a key, and is cheaper to read than the keys
                self._keys, self._state = {key.id: key for key in keys_in(connection)}, state
                self._known = {**self._keys, **self._temporary}
                self.is_locked = self.is_locked or bool(self._keys)  # a service with keys stays locked
            secrets = signing_secrets_in(connection)
            self.signing_secret, self.unlisted_secret = secrets.get(LINKS), secrets.get(UNLISTED_LINKS)

    def make_signing_secret(self) -> bytes:
        """The signing secret of links, created on first use."""
        if self.signing_secret is None:
            if self._engine is None:
                raise Unreachable(NO_ANSWER)
            fresh = token_bytes(SECRET_BYTES)
            made = {"name": LINKS, "secret": fresh, "made_at": datetime.now(UTC)}
            with answering(), writing(self._engine) as connection:
                connection.execute(insert_new(connection, SERVER_SECRETS), made)
                self.signing_secret = signing_secrets_in(connection).get(LINKS, fresh)
        return self.signing_secret

    def record_link_use(self, link_id: str, moment: datetime) -> None:
        """Record the use of a share link; it is written later."""
        self._link_uses.record(link_id, moment)
        self.noted.set()

    def write_uses(self, *, all_of_them: bool = False) -> None:
        """Write the last uses of keys and share links, each at most once a minute."""
        if self._engine is not None:
            self._key_uses.write(self._engine, all_of_them=all_of_them)
            self._link_uses.write(self._engine, all_of_them=all_of_them)
