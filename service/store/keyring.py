"""Whose key is this, and did we sign this? Answered from memory: no request waits for the database.

What other processes make of keys is seen at the next look; that a key was used is written then too, at most once a
minute a key.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from typing import Any

from sqlalchemy import Engine

from service.errors import Unreachable
from service.store.engine import answering, reading, writing
from service.store.keys import ApiKey, keys_in, state_in, write_uses
from service.store.refusals import NO_ANSWER
from service.store.secrets import LINKS, UNLISTED_LINKS, make_signing_secret, signing_secrets_in
from service.store.share_links import write_link_uses_in

USES_APART = timedelta(minutes=1)
"""Shortest time between two notes that a key was used."""

SEPARATOR = "."
"""Stands between the public part of a key and its secret part."""

_NOBODY = ApiKey(
    id="", name="", owner="", scopes=(), digest=bytes(sha256().digest_size), created_at=datetime.min.replace(tzinfo=UTC)
)
"""What stands in the place of an unknown key, so that its secret is compared as that of a known one is."""


class KeyRing:
    """The keys of the service, and what it signs links with.

    Args:
        engine: the database; None where there is none, so that there are no keys
    """

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
        """The key that a caller presents.

        Args:
            presented: public and secret part, as the caller sent them

        Returns:
            the key, revoked or not; None where there is no such key, or its secret is another
        """
        key_id, _, secret = presented.partition(SEPARATOR)
        key = self._known.get(key_id, _NOBODY)
        is_right = compare_digest(sha256(secret.encode(errors="replace")).digest(), key.digest)
        return key if is_right and key is not _NOBODY else None

    def known(self, key_id: str) -> ApiKey | None:
        """The key of a public part as it is now, revoked or not; None where there is none."""
        return self._known.get(key_id)

    def lend(self, key: ApiKey) -> None:
        """Let a key in for as long as this process runs; it is kept in memory alone, and locks nothing.

        Args:
            key: the key
        """
        self._lent[key.id] = key
        self._known = {**self._keys, **self._lent}

    def note_use(self, key: ApiKey, moment: datetime) -> None:
        """Remember that a key was used; it is written later.

        Args:
            key: the key
            moment: when
        """
        if key.id not in self._lent:
            self._used[key.id] = moment

    def refresh(self) -> None:
        """Take over which keys other processes made, limited and revoked.

        Raises:
            Unreachable: the database does not answer
        """
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
        """What links are signed with, made where there is nothing yet.

        Returns:
            the secret

        Raises:
            Unreachable: the database does not answer, or there is none
        """
        if self.signing_secret is None:
            if self._engine is None:
                raise Unreachable(NO_ANSWER)
            self.signing_secret = make_signing_secret(self._engine)
        return self.signing_secret

    def note_opening(self, link_id: str, moment: datetime) -> None:
        """Remember that a share link was opened; it is written later."""
        self._opened[link_id] = moment

    def write_uses(self, *, all_of_them: bool = False) -> None:
        """Write when keys and share links were last used: of each at most once a minute.

        Args:
            all_of_them: whether to write what is less than a minute after the last note too, before the process ends

        Raises:
            Unreachable: the database does not answer
        """
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
