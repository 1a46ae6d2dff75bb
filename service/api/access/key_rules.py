"""API keys: creation, scopes, expiry."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Literal, get_args

from service.catalogue import SHIPPED
from service.errors import NotFound, Problem, refuse
from service.settings import MOST_AT_ONCE, MOST_PER_MINUTE
from service.store import Engine
from service.store.engine import place_of, utc_text
from service.store.keys import SEPARATOR, TEAM, ApiKey, KeyRing, Scope, create_key, limit_key, read_keys, revoke_key
from service.tabular.lists import Record
from service.validation.json_text import normalized

IMPLIED_SCOPES: Mapping[Scope, frozenset[Scope]] = {
    "sheet": frozenset({"sheet"}),
    "read": frozenset({"read", "sheet"}),
    "write": frozenset({"write", "read", "sheet"}),
    "worker": frozenset({"worker"}),
    "admin": frozenset(get_args(Scope)),
}
"""Scopes that each scope includes: itself, and those that its holders need too."""

NO_SUCH_KEY = "there is no key of this id in {}; traincost keys list tells those that are"

KeyStatus = Literal["active", "expired", "revoked"]

ID_BYTES = 6
SECRET_BYTES = 32
"""256 random bits: their digest needs no salt and no slow hash, because guessing them is infeasible."""
LONGEST_NAME = 120
MOST_DAYS = 3650

LIMIT_BOUNDS = {"requests_per_minute": (0, MOST_PER_MINUTE), "request_burst": (1, MOST_AT_ONCE)}
"""Bounds of a key's limits, the same as those of the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """Rate limits of a key; None for the service's."""

    requests_per_minute: int | None = None
    """Requests in a minute in the long run; 0 for any number."""
    request_burst: int | None = None
    """Requests at once after a pause."""


SERVICE_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRequest:
    name: str
    scopes: Sequence[str]
    owner: str = TEAM
    """Its owner."""
    days: int | None = None
    """Its validity; None until it is revoked."""
    limits: KeyLimits = SERVICE_LIMITS


@dataclass(frozen=True, slots=True)
class NewKey:
    key: ApiKey
    presented: str
    """The credential that callers send; it is shown once and not stored."""


def make_key(engine: Engine, request: KeyRequest) -> NewKey:
    request = replace(request, name=normalized(request.name), owner=normalized(request.owner))
    problems = [*_problems(request)]
    refuse(problems)
    made = _new_key(request)
    create_key(engine, made.key)
    return made


def create_temporary_key(ring: KeyRing, request: KeyRequest) -> NewKey:
    """Create a key that is valid while this process runs, and is not stored."""
    made = _new_key(request)
    ring.add_temporary(made.key)
    return made


def _new_key(request: KeyRequest) -> NewKey:
    secret, now = token_urlsafe(SECRET_BYTES), datetime.now(UTC)
    key = ApiKey(
        id=f"tck_{token_urlsafe(ID_BYTES)}",
        name=request.name,
        owner=request.owner,
        scopes=tuple(scope for scope in get_args(Scope) if scope in request.scopes),
        digest=sha256(secret.encode()).digest(),
        created_at=now,
        expires_at=None if request.days is None else now + timedelta(days=request.days),
        **asdict(request.limits),
    )
    return NewKey(key, f"{key.id}{SEPARATOR}{secret}")


def limit(engine: Engine, key_id: str, limits: KeyLimits) -> None:
    """Change the limits of a key; running services apply them within about a second."""
    problems = [*_limit_problems(limits)]
    refuse(problems)
    if not limit_key(engine, key_id.partition(SEPARATOR)[0], **asdict(limits)):
        raise NotFound(NO_SUCH_KEY.format(place_of(engine)))


def revoke(engine: Engine, key_id: str) -> datetime | None:
    """Revoke a key; running services reject it within about a second."""
    now = datetime.now(UTC)
    moment = revoke_key(engine, key_id.partition(SEPARATOR)[0], now)
    if moment is None:
        raise NotFound(NO_SUCH_KEY.format(place_of(engine)))
    return None if moment == now else moment


def key_status(key: ApiKey, moment: datetime) -> KeyStatus:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= moment else "active"


def does_allow(scopes: Iterable[Scope], scope: Scope) -> bool:
    """Whether any of the granted scopes includes a scope."""
    return any(scope in IMPLIED_SCOPES[granted] for granted in scopes)


def key_records(engine: Engine) -> list[Record]:
    return [key_record(key) for key in read_keys(engine)]


def key_record(key: ApiKey) -> Record:
    """A key for operators of the service, without its digest."""
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


def _problems(request: KeyRequest) -> list[Problem]:
    problems = [
        Problem(
            field=name,
            code="not_text",
            message=f"{name} is empty, longer than {LONGEST_NAME} characters, or holds an invisible character",
            fix="say in a line what, or who, it stands for",
        )
        for name, text in (("name", request.name), ("owner", request.owner))
        if not (0 < len(text.strip()) <= len(text) <= LONGEST_NAME and text.isprintable())
    ]
    if request.owner == SHIPPED:
        message = f"{SHIPPED} owns what the service ships, which cannot be changed"
        problems.append(Problem(field="owner", code="not_a_choice", message=message, fix="choose another name"))
    unknown = set(request.scopes) - set(get_args(Scope))
    if unknown or not request.scopes:
        message = "a scope is none that a key can have" if unknown else "a key without a scope allows nothing"
        fix = f"say {', '.join(get_args(Scope)[:-1])} or {get_args(Scope)[-1]}"
        problems.append(Problem(field="scope", code="not_a_choice", message=message, fix=fix))
    if request.days is not None and not 1 <= request.days <= MOST_DAYS:
        message = f"days is {request.days}; a key holds for 1 to {MOST_DAYS} days, or until it is revoked"
        problems.append(Problem(field="days", code="out_of_bounds", message=message, fix="choose a number in between"))
    return [*problems, *_limit_problems(request.limits)]


def _limit_problems(limits: KeyLimits) -> Iterator[Problem]:
    for name, (least, most) in LIMIT_BOUNDS.items():
        number = getattr(limits, name)
        if number is not None and not least <= number <= most:
            message = f"{name} is {number}; it is {least} to {most}, or what the service says where it is left out"
            yield Problem(field=name, code="out_of_bounds", message=message, fix="choose a number in between")
