"""OpenID Connect tokens, verified in memory, and the keys of their issuer."""

import json
import logging
from asyncio import Task, create_task, shield
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import jwt
from jwt import PyJWK, PyJWTError
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import ISSUER_AWAY, Identity, InvalidToken
from service.api.access.key_rules import LONGEST_NAME
from service.api.errors import ApiError
from service.catalogue import SHIPPED
from service.errors import StartupError
from service.settings import Settings
from service.store.keys import Caller, Scope
from service.validation.json_text import normalized

FRESH_SECONDS = 600.0
"""Age at which keys are refreshed in the background. Source: a choice; the time until a withdrawn key is rejected."""
APART_SECONDS = 5.0
"""Shortest time between two reads for an unknown key. Source: a choice."""
LONGEST_SECONDS = 5.0
"""Longest wait for the issuer. Source: a choice."""
MOST_BYTES = 1 << 20
"""Longest JWK set. Source: a choice; a thousand keys take less."""

KEY_TYPES = frozenset({"RSA", "EC", "OKP"})

RETRY_AFTER = {"Retry-After": str(int(APART_SECONDS))}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SigningKey:
    public: Any
    """The key, as an object of PyJWT."""
    algorithm: str | None
    """The only algorithm of the key; None where the issuer names none."""


class SigningKeys:
    def __init__(self, source: str) -> None:
        self._source = source
        self._keys: Mapping[str, SigningKey] = {} if "://" in source else _keys_of_file(source)
        self._read_at = self._tried_at = -FRESH_SECONDS
        self._is_away = False
        self._reading: Task[None] | None = None

    async def find(self, key_id: str) -> SigningKey | None:
        """The key with an id; None where the issuer has none."""
        key, now = self._keys.get(key_id), monotonic()
        if key is None and now - self._tried_at >= APART_SECONDS:
            await shield(self._refresh())
            key = self._keys.get(key_id)
        elif key is None and self._reading is not None:
            await shield(self._reading)
            key = self._keys.get(key_id)
        elif now - max(self._read_at, self._tried_at) >= FRESH_SECONDS:
            self._refresh()
        if key is None and self._is_away:
            raise ApiError("issuer_away", ISSUER_AWAY, RETRY_AFTER)
        return key

    def _refresh(self) -> Task[None]:
        """The running read of the issuer's keys, or a new one."""
        if self._reading is None:
            self._tried_at = monotonic()
            self._reading = create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        try:
            self._keys = keys_of(await run_in_threadpool(_content, self._source))
            self._read_at, self._is_away = monotonic(), False
        except Exception as error:  # of any kind: known keys stay valid, and the next read may succeed
            if not self._is_away:
                log.warning("the keys that tokens are signed with cannot be read: %s", type(error).__name__)
            self._is_away = True
        finally:
            self._reading = None


def keys_of(content: bytes) -> dict[str, SigningKey]:
    """The signing keys of a JWK set, by id."""
    document = json.loads(content)
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError("no JWK set")  # noqa: TRY004 - the text is wrong, not a type
    keys = {}
    for one in document["keys"]:
        if isinstance(one, dict) and one.get("kty") in KEY_TYPES and one.get("use", "sig") == "sig" and "kid" in one:
            try:
                keys[str(one["kid"])] = SigningKey(PyJWK(one).key, one.get("alg"))
            except PyJWTError:  # an unsupported curve or form: tokens signed with it are rejected
                log.warning("a key that tokens may be signed with cannot be used")
    return keys


def _keys_of_file(path: str) -> Mapping[str, SigningKey]:
    try:
        return keys_of(_content(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no JWK set"
        raise StartupError(f"the keys of tokens cannot be read from {path}: {reason}") from None


def _content(source: str) -> bytes:
    if "://" not in source:
        with Path(source).open("rb") as file:
            return file.read(MOST_BYTES)
    deadline, content = monotonic() + LONGEST_SECONDS, b""
    with httpx.stream("GET", source, timeout=LONGEST_SECONDS) as response:
        response.raise_for_status()
        for part in response.iter_bytes():
            content += part
            if len(content) > MOST_BYTES or monotonic() > deadline:
                raise ValueError("too long")
    return content


LONGEST = 8_192
"""Characters of the longest token. Source: a choice; providers stay below 4,096."""
LEEWAY_SECONDS = 30.0
"""Tolerated clock skew. Source: a choice."""
REQUIRED = ("exp", "iss", "aud", "sub")
"""Claims that RFC 9068 requires."""

REASONS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "the token has expired; ask its issuer for another"),
    (jwt.ImmatureSignatureError, "the token holds from a later moment on"),
    (jwt.InvalidAudienceError, "the token is for another service than this one"),
    (jwt.InvalidIssuerError, "the token is of another issuer than this service takes them from"),
    (jwt.MissingRequiredClaimError, f"the token lacks one of the claims {', '.join(REQUIRED)}"),
)
UNREADABLE = "the token is none that this service can check; look for a part of it that is missing"
NOT_ALLOWED = "the token is signed by an algorithm that this service does not take"
UNKNOWN_SIGNING_KEY = "the token is signed with a key that its issuer does not have"
NO_OWNER = "the token does not say in a line of text whose it is"


class JwtVerifier:
    """Verifies JSON web tokens of an OpenID Connect issuer."""

    def __init__(self, settings: Settings, keys: SigningKeys) -> None:
        self._settings = settings
        self._keys = keys
        self._roles: Mapping[str, Scope] = dict(settings.oidc_roles)

    async def verify(self, token: str) -> Identity:
        """Check signature, issuer, audience and expiry of a token; return its caller and scopes."""
        algorithm, key_id = self._read_header(token)
        key = await self._keys.find(key_id)
        if key is None:
            raise InvalidToken(UNKNOWN_SIGNING_KEY)
        if key.algorithm not in {None, algorithm}:
            raise InvalidToken(NOT_ALLOWED)
        claims = self._decode(token, key.public, algorithm)
        subject, owner = claims["sub"], normalized(claim_of(claims, self._settings.oidc_owner_claim))
        if not (_is_name(subject) and _is_name(owner)) or owner == SHIPPED:
            raise InvalidToken(NO_OWNER)
        scopes = scopes_of(claim_of(claims, self._settings.oidc_scopes_claim), self._roles)
        caller = Caller(id=subject, owner=owner, sees_all="admin" in scopes, is_shared=True)
        return Identity(caller, scopes, token_end_seconds=float(claims["exp"]))

    def _read_header(self, token: str) -> tuple[str, str]:
        if len(token) > LONGEST:
            raise InvalidToken(UNREADABLE)
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise InvalidToken(UNREADABLE) from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.oidc_algorithms:
            raise InvalidToken(NOT_ALLOWED)
        if not isinstance(key_id, str) or "crit" in header:
            raise InvalidToken(UNREADABLE)
        return algorithm, key_id

    def _decode(self, token: str, key: Any, algorithm: str) -> Mapping[str, Any]:
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.oidc_audience,
                issuer=self._settings.oidc_issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": list(REQUIRED)},
            )
        except jwt.PyJWTError as error:
            raise InvalidToken(
                next((reason for kind, reason in REASONS if isinstance(error, kind)), UNREADABLE)
            ) from None
        except (ValueError, TypeError, OverflowError, RecursionError):  # a claim of an unexpected type
            raise InvalidToken(UNREADABLE) from None
        return claims


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """The claim with a name, or at a dotted path.

    >>> claim_of({"realm_access": {"roles": ["x"]}}, "realm_access.roles")
    ['x']
    """
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def scopes_of(claim: Any, roles: Mapping[str, Scope]) -> frozenset[Scope]:
    """The scopes of the roles in a claim.

    >>> scopes_of("openid ml", {"ml": "write"}), scopes_of(["x"], {"ml": "write"}), scopes_of(7, {})
    (frozenset({'write'}), frozenset(), frozenset())
    """
    names = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else ()
    return frozenset(roles[name] for name in names if isinstance(name, str) and name in roles)


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text.strip()) <= len(text) <= LONGEST_NAME and text.isprintable()
