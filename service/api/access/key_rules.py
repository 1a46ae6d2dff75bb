"""API keys: creation, scopes, expiry."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Literal, get_args

from service import store
from service.catalogue import SHIPPED
from service.errors import NotFound, Problem, Refused
from service.settings import MOST_AT_ONCE, MOST_PER_MINUTE
from service.store import SEPARATOR, ApiKey, Engine, KeyRing, Scope, place_of, utc_text
from service.store.keys import TEAM
from service.tabular.lists import Record
from service.validation.text import composed

IMPLIED_SCOPES: Mapping[Scope, frozenset[Scope]] = {
    "sheet": frozenset({"sheet"}),
    "read": frozenset({"read", "sheet"}),
    "write": frozenset({"write", "read", "sheet"}),
    "worker": frozenset({"worker"}),
    "admin": frozenset(get_args(Scope)),
}
"""What each scope allows: itself, and what whoever has it needs too."""

NO_SUCH_KEY = "there is no key of this id in {}; traincost keys list tells those that are"

KeyStatus = Literal["active", "expired", "revoked"]

ID_BYTES = 6
SECRET_BYTES = 32
"""256 bits: a digest of that many needs no salt and no slow hash, for nobody tries them all."""
LONGEST_NAME = 120
MOST_DAYS = 3650

LIMIT_BOUNDS = {"requests_per_minute": (0, MOST_PER_MINUTE), "request_burst": (1, MOST_AT_ONCE)}
"""What limits of a key may be: the same as those of the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """What a key may ask; where one is None, what the service says for all."""

    requests_per_minute: int | None = None
    """Requests in a minute in the long run; 0 for any number."""
    request_burst: int | None = None
    """Requests at once after a pause."""


SERVICE_LIMITS = KeyLimits()
"""Limits of a key that has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRequest:
    """A key that somebody asks for."""

    name: str
    """What it is for."""
    scopes: Sequence[str]
    """What it is to allow."""
    owner: str = TEAM
    """Whose it is."""
    days: int | None = None
    """How long it holds; None for as long as nobody revokes it."""
    limits: KeyLimits = SERVICE_LIMITS
    """What it may ask."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made."""

    key: ApiKey
    """What is kept of it."""
    presented: str
    """What its caller sends: told once, kept nowhere."""


def make_key(engine: Engine, wanted: KeyRequest) -> NewKey:
    """Make a key."""
    wanted = replace(wanted, name=composed(wanted.name), owner=composed(wanted.owner))
    problems = [*_problems(wanted)]
    if problems:
        raise Refused(*problems)
    made = _new_key(wanted)
    store.create_key(engine, made.key)
    return made


def create_temporary_key(ring: KeyRing, wanted: KeyRequest) -> NewKey:
    """Make a key that holds for as long as this process runs, and is kept nowhere."""
    made = _new_key(wanted)
    ring.lend(made.key)
    return made


def _new_key(wanted: KeyRequest) -> NewKey:
    secret, now = token_urlsafe(SECRET_BYTES), datetime.now(UTC)
    key = ApiKey(
        id=f"tck_{token_urlsafe(ID_BYTES)}",
        name=wanted.name,
        owner=wanted.owner,
        scopes=tuple(scope for scope in get_args(Scope) if scope in wanted.scopes),
        digest=sha256(secret.encode()).digest(),
        created_at=now,
        expires_at=None if wanted.days is None else now + timedelta(days=wanted.days),
        **asdict(wanted.limits),
    )
    return NewKey(key, f"{key.id}{SEPARATOR}{secret}")


def limit(engine: Engine, key_id: str, limits: KeyLimits) -> None:
    """Give a key other limits; running services hear of it within about a second."""
    problems = [*_limit_problems(limits)]
    if problems:
        raise Refused(*problems)
    if not store.limit_key(engine, key_id.partition(SEPARATOR)[0], **asdict(limits)):
        raise NotFound(NO_SUCH_KEY.format(place_of(engine)))


def revoke(engine: Engine, key_id: str) -> datetime | None:
    """Have a key refused from now on; running services hear of it within about a second."""
    now = datetime.now(UTC)
    moment = store.revoke_key(engine, key_id.partition(SEPARATOR)[0], now)
    if moment is None:
        raise NotFound(NO_SUCH_KEY.format(place_of(engine)))
    return None if moment == now else moment


def key_status(key: ApiKey, moment: datetime) -> KeyStatus:
    """Whether a key holds."""
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= moment else "active"


def does_allow(scopes: Iterable[Scope], scope: Scope) -> bool:
    """Whether what somebody has is enough for what needs a scope."""
    return any(scope in IMPLIED_SCOPES[held] for held in scopes)


def key_records(engine: Engine) -> list[Record]:
    """Every key, without what its secret could be told from."""
    return [key_record(key) for key in store.read_keys(engine)]


def key_record(key: ApiKey) -> Record:
    """A key as it may be told to anybody who runs the service."""
    moments = {name: getattr(key, name) for name in ("created_at", "expires_at", "revoked_at", "last_used_at")}
    return {
        "id": key.id,
        "name": key.name,
        "owner": key.owner,
        "scopes": key.scopes,
        "standing": key_status(key, datetime.now(UTC)),
        **{name: None if moment is None else utc_text(moment) for name, moment in moments.items()},
        "requests_per_minute": key.requests_per_minute,
        "request_burst": key.request_burst,
    }


def _problems(wanted: KeyRequest) -> list[Problem]:
    problems = [
        Problem(
            field=name,
            code="not_text",
            message=f"{name} is empty, longer than {LONGEST_NAME} characters, or holds what nobody sees",
            fix="say in a line what, or who, it stands for",
        )
        for name, text in (("name", wanted.name), ("owner", wanted.owner))
        if not (0 < len(text.strip()) <= len(text) <= LONGEST_NAME and text.isprintable())
    ]
    if wanted.owner == SHIPPED:
        message = f"{SHIPPED} owns what the service ships, which nobody changes"
        problems.append(Problem(field="owner", code="not_a_choice", message=message, fix="choose another name"))
    unknown = set(wanted.scopes) - set(get_args(Scope))
    if unknown or not wanted.scopes:
        message = "a scope is none that a key can have" if unknown else "a key without a scope allows nothing"
        fix = f"say {', '.join(get_args(Scope)[:-1])} or {get_args(Scope)[-1]}"
        problems.append(Problem(field="scope", code="not_a_choice", message=message, fix=fix))
    if wanted.days is not None and not 1 <= wanted.days <= MOST_DAYS:
        message = f"days is {wanted.days}; a key holds for 1 to {MOST_DAYS} days, or until it is revoked"
        problems.append(Problem(field="days", code="out_of_bounds", message=message, fix="choose a number in between"))
    return [*problems, *_limit_problems(wanted.limits)]


def _limit_problems(limits: KeyLimits) -> Iterator[Problem]:
    for name, (least, most) in LIMIT_BOUNDS.items():
        number = getattr(limits, name)
        if number is not None and not least <= number <= most:
            message = f"{name} is {number}; it is {least} to {most}, or what the service says where it is left out"
            yield Problem(field=name, code="out_of_bounds", message=message, fix="choose a number in between")
