"""Whose token is this, and what may its bearer do? Judged from memory: an OpenID Connect provider signed it.

Signature, issuer, audience and time are checked by PyJWT, with algorithms that a setting allows and that have a public
key: what a token says of its own algorithm never turns a public key into a secret.
"""

from collections.abc import Mapping
from typing import Any

import jwt

from service.api.bearers import Bearer, WrongToken
from service.api.key_rules import LONGEST_NAME
from service.api.signing_keys import SigningKeys
from service.catalogue import SHIPPED
from service.settings import Settings
from service.store import Scope
from service.store.callers import Caller
from service.validation.text import composed

LONGEST = 8_192
"""Characters of the longest token. Source: a choice; providers stay below 4,096."""
LEEWAY_SECONDS = 30.0
"""How far the clocks of two machines may differ. Source: a choice."""
REQUIRED = ("exp", "iss", "aud", "sub")
"""Claims without which a token is none of RFC 9068."""

WHY: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "the token has expired; ask its issuer for another"),
    (jwt.ImmatureSignatureError, "the token holds from a later moment on"),
    (jwt.InvalidAudienceError, "the token is for another service than this one"),
    (jwt.InvalidIssuerError, "the token is of another issuer than this service takes them from"),
    (jwt.MissingRequiredClaimError, f"the token lacks one of the claims {', '.join(REQUIRED)}"),
)
UNREADABLE = "the token is none that this service can check; look for a part of it that is missing"
NOT_ALLOWED = "the token is signed by an algorithm that this service does not take"
UNKNOWN = "the token is signed with a key that its issuer does not have"
NOBODY = "the token does not say in a line of text whose it is"


class Tokens:
    """What judges tokens.

    Args:
        settings: issuer, audience, algorithms, and what claims mean
        keys: the issuer's keys
    """

    def __init__(self, settings: Settings, keys: SigningKeys) -> None:
        self._settings = settings
        self._keys = keys
        self._roles: Mapping[str, Scope] = dict(settings.oidc_roles)

    async def bearer_of(self, token: str) -> Bearer:
        """Who sent a token.

        Args:
            token: the token, as it was sent

        Returns:
            the caller, and what they may do

        Raises:
            WrongToken: it is none that holds here and now
            ApiError: its issuer does not say with which key it is signed
        """
        algorithm, key_id = self._read_head(token)
        key = await self._keys.find(key_id)
        if key is None:
            raise WrongToken(UNKNOWN)
        if key.algorithm not in {None, algorithm}:
            raise WrongToken(NOT_ALLOWED)
        claims = self._checked(token, key.public, algorithm)
        subject, owner = claims["sub"], composed(claim_of(claims, self._settings.oidc_owner_claim))
        if not (_is_name(subject) and _is_name(owner)) or owner == SHIPPED:
            raise WrongToken(NOBODY)
        scopes = scopes_of(claim_of(claims, self._settings.oidc_scopes_claim), self._roles)
        return Bearer(
            Caller(id=subject, owner=owner, sees_all="admin" in scopes, is_shared=True), scopes, float(claims["exp"])
        )

    def _read_head(self, token: str) -> tuple[str, str]:
        """Algorithm and key that a token says it is signed with, nothing of it believed yet."""
        if len(token) > LONGEST:
            raise WrongToken(UNREADABLE)
        try:
            head = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise WrongToken(UNREADABLE) from None
        algorithm, key_id = head.get("alg"), head.get("kid")
        if algorithm not in self._settings.oidc_algorithms:
            raise WrongToken(NOT_ALLOWED)
        if not isinstance(key_id, str) or "crit" in head:
            raise WrongToken(UNREADABLE)
        return algorithm, key_id

    def _checked(self, token: str, key: Any, algorithm: str) -> Mapping[str, Any]:
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
            raise WrongToken(next((why for kind, why in WHY if isinstance(error, kind)), UNREADABLE)) from None
        except (ValueError, TypeError, OverflowError, RecursionError):  # a claim of a kind that nobody expects
            raise WrongToken(UNREADABLE) from None
        return claims


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """What a token says under a name.

    Args:
        claims: its claims
        name: name of a claim; a.b for b inside a, where no claim is called so

    Returns:
        the value; None where there is none

    >>> claim_of({"realm_access": {"roles": ["x"]}}, "realm_access.roles")
    ['x']
    """
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def scopes_of(said: Any, roles: Mapping[str, Scope]) -> frozenset[Scope]:
    """What the names in a claim allow.

    Args:
        said: a list of names, or a text of names with spaces between
        roles: what each name allows

    Returns:
        scopes; names that mean nothing here allow nothing

    >>> scopes_of("openid ml", {"ml": "write"}), scopes_of(["x"], {"ml": "write"}), scopes_of(7, {})
    (frozenset({'write'}), frozenset(), frozenset())
    """
    names = said.split() if isinstance(said, str) else said if isinstance(said, list) else ()
    return frozenset(roles[name] for name in names if isinstance(name, str) and name in roles)


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text.strip()) <= len(text) <= LONGEST_NAME and text.isprintable()
