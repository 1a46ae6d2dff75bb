"""Signatures of share links.

A signature covers the scheme, the scenario, the id of the link and its end. Links of earlier versions have no id.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest, digest

from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import KeyRing, read_share_link

SCHEME = "2"
"""Version of the signature scheme."""
UNLISTED_SCHEME = "1"
"""Scheme of links without an id."""
PARAMETER = "share"
LONGEST_END = 11
"""Digits of an end in seconds: enough until the year 5138, and few enough for int()."""


def signed(secret: bytes, link_id: str, scenario_id: str, end: int) -> str:
    """Token of a share link: scheme, id, end [second since 1970] and signature."""
    return f"{SCHEME}.{link_id}.{end}.{_signature(secret, f'{SCHEME} {scenario_id} {link_id} {end}')}"


def signed_unlisted(secret: bytes, scenario_id: str, end: int) -> str:
    """Token of a link without an id, from earlier versions: scheme, end [second since 1970] and signature."""
    return f"{UNLISTED_SCHEME}.{end}.{_signature(secret, f'{UNLISTED_SCHEME} {scenario_id} {end}')}"


def _signature(secret: bytes, text: str) -> str:
    return urlsafe_b64encode(digest(secret, text.encode(), sha256)).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class VerifiedLink:
    """A share link with a valid signature."""

    id: str | None
    """Its id; None for a link of an earlier version."""


def verify_link(keys: KeyRing, scenario_id: str, token: str, moment: datetime) -> VerifiedLink | str:
    """Check the signature and the end of a link; return the link, or the reason against it."""
    scheme, _, rest = token.partition(".")
    link_id: str | None = None
    if scheme == SCHEME:
        link_id, _, rest = rest.partition(".")
    text, _, _ = rest.partition(".")
    end = int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_END else 0
    secret = keys.unlisted_secret if link_id is None else keys.signing_secret
    genuine = signed_unlisted(secret or b"", scenario_id, end)
    if link_id is not None:
        genuine = signed(secret or b"", link_id, scenario_id, end)
    if secret is None or not compare_digest(genuine.encode(errors="replace"), token.encode(errors="replace")):
        return "the link is none that this service signed for this scenario; look for a part of it that is missing"
    if end <= moment.timestamp():
        return f"the link ended at {utc_text(datetime.fromtimestamp(end, UTC))}; ask for another"
    return VerifiedLink(link_id)


def revocation_reason(engine: Engine, link_id: str) -> str | None:
    """Message for a link that was revoked or removed; None for a valid one."""
    link = read_share_link(engine, link_id)
    if link is None:
        return "the link is kept no longer; ask for another"
    return None if link.revoked_at is None else "the link was revoked; ask for another"
