"""With which key is a token signed? Those that its issuer publishes, in memory, read again as the issuer changes them.

A key that is known costs no wait, whatever happens to the issuer. One that is not is looked for once, however many ask
for it, and again after some seconds at the earliest: nobody makes this service ask in the name of tokens that are none.
"""

import json
import logging
from asyncio import Task, create_task, shield
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
from jwt import PyJWK, PyJWTError
from starlette.concurrency import run_in_threadpool

from service.api.bearers import AWAY
from service.api.problems import ApiError
from service.errors import StartupError

FRESH_SECONDS = 600.0
"""Age from which keys are read again while the old ones serve. Source: a choice; a key that is gone is refused then."""
APART_SECONDS = 5.0
"""Shortest time between two looks for an unknown key. Source: a choice."""
LONGEST_SECONDS = 5.0
"""Longest wait for the issuer. Source: a choice."""
MOST_BYTES = 1 << 20
"""Longest document that is read. Source: a choice; a thousand keys take less."""

KINDS = frozenset({"RSA", "EC", "OKP"})
"""Kinds of keys that have a public part."""

RETRY_AFTER = {"Retry-After": str(int(APART_SECONDS))}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key of the issuer."""

    public: Any
    """The key, as the library that checks signatures has it."""
    algorithm: str | None
    """The only algorithm that it is for; None where the issuer does not say."""


class SigningKeys:
    """The public keys of an issuer.

    Args:
        source: where they are: an address, or the path of a file, which has to be there

    Raises:
        StartupError: it is a file, and cannot be read
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._keys: Mapping[str, SigningKey] = {} if "://" in source else _keys_of_file(source)
        self._read_at = self._tried_at = -FRESH_SECONDS
        self._is_away = False
        self._reading: Task[None] | None = None

    async def find(self, key_id: str) -> SigningKey | None:
        """The key of an id.

        Args:
            key_id: what the token calls it

        Returns:
            the key; None where the issuer has none of this id

        Raises:
            ApiError: the issuer does not answer, so nobody knows
        """
        found, now = self._keys.get(key_id), monotonic()
        if found is None and now - self._tried_at >= APART_SECONDS:
            await shield(self._started())
            found = self._keys.get(key_id)
        elif found is None and self._reading is not None:
            await shield(self._reading)
            found = self._keys.get(key_id)
        elif now - max(self._read_at, self._tried_at) >= FRESH_SECONDS:
            self._started()
        if found is None and self._is_away:
            raise ApiError("issuer_away", AWAY, RETRY_AFTER)
        return found

    def _started(self) -> Task[None]:
        """The look at the issuer that is under way, or a new one."""
        if self._reading is None:
            self._tried_at = monotonic()
            self._reading = create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        try:
            self._keys = keys_of(await run_in_threadpool(_content, self._source))
            self._read_at, self._is_away = monotonic(), False
        except Exception as error:  # whatever it is, known keys serve, and the next look may succeed
            if not self._is_away:
                log.warning("the keys that tokens are signed with cannot be read: %s", type(error).__name__)
            self._is_away = True
        finally:
            self._reading = None


def keys_of(content: bytes) -> dict[str, SigningKey]:
    """The keys of a JWK set that tokens may be signed with.

    Args:
        content: JSON of RFC 7517

    Returns:
        public keys by their ids; what is for another use, or of a kind without a public part, is left out

    Raises:
        ValueError: it is no JWK set
    """
    document = json.loads(content)
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError("no JWK set")  # noqa: TRY004 - text is wrong, not a type
    found = {}
    for one in document["keys"]:
        if isinstance(one, dict) and one.get("kty") in KINDS and one.get("use", "sig") == "sig" and "kid" in one:
            try:
                found[str(one["kid"])] = SigningKey(PyJWK(one).key, one.get("alg"))
            except PyJWTError:  # of a curve or a form that nobody here can check; tokens signed with it are refused
                log.warning("a key that tokens may be signed with cannot be used")
    return found


def _keys_of_file(path: str) -> Mapping[str, SigningKey]:
    try:
        return keys_of(_content(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no JWK set"
        raise StartupError(f"the keys of tokens cannot be read from {path}: {reason}") from None


def _content(source: str) -> bytes:
    """What stands at an address, or in a file."""
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
