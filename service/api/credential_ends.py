"""Expiry of credentials during long requests: event streams, and workers that wait for a job.

One task for all of them checks several times a second whether each key or token is still valid. Keys are in memory, and
revocations by other processes arrive within half a second.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager, suppress
from contextvars import Context
from datetime import UTC, datetime
from time import time
from typing import Any

from fastapi import Request

from service.api.access.authorization import GRANT, NO_KEY, AccessDenied, Grant, inactive_key_reason, unauthorized
from service.api.access.key_rules import does_allow, key_status
from service.api.envelope import problem_of
from service.store.keys import ApiKey, KeyRing, Scope

POLL_SECONDS = 0.2
"""Time between two checks. Source: a choice; below a second together with the refresh of keys."""


def refuse_expired(request: Request) -> None:
    """Reject a request whose credential is no longer valid."""
    reason = _expiry_reason(request.app.state.keys, request.scope["state"].get(GRANT))
    if reason is not None:
        raise unauthorized(reason)


async def while_authorized(request: Request, events: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Events until they end or the credential expires; then the last event is a problem with the reason."""
    watch: CredentialWatch = request.app.state.credential_ends
    async with aclosing(events):
        with watch.watched(request) as expired:
            while True:
                upcoming = asyncio.ensure_future(_next(events))
                either: set[asyncio.Future[Any]] = {upcoming, expired}
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not upcoming.done() or expired.done():
                        await _cancel(upcoming)
                if expired.done():
                    yield b"event: problem\ndata: " + bytes(problem_of(request, expired.result()).body) + b"\n\n"
                    return
                event = upcoming.result()
                if event is None:
                    return
                yield event


class CredentialWatch:
    """Long requests and their credentials."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._watched: dict[asyncio.Future[AccessDenied], Grant | None] = {}
        self._checking: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self, request: Request) -> Iterator[asyncio.Future[AccessDenied]]:
        """A future that gets the rejection once the credential of a request is no longer valid."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[AccessDenied] = loop.create_future()
        self._watched[ended] = request.scope["state"].get(GRANT)
        if self._checking is None or self._checking.done() or self._checking.get_loop() is not loop:
            self._checking = loop.create_task(self._check(), context=Context())
        try:
            yield ended
        finally:
            del self._watched[ended]

    async def _check(self) -> None:
        while self._watched and self._checking is asyncio.current_task():
            for ended, grant in [*self._watched.items()]:
                reason = None if ended.done() else _expiry_reason(self._ring, grant)
                if reason is not None:
                    ended.set_result(unauthorized(reason))
            await asyncio.sleep(POLL_SECONDS)


def _expiry_reason(ring: KeyRing, grant: Grant | None) -> str | None:
    """Why the credential of a request is no longer valid; None for a valid one."""
    if grant is None:
        return None
    if grant.key is not None:
        return _key_expiry_reason(ring.known(grant.key.id), grant.key, grant.scope)
    if grant.token_end_seconds is None:
        return NO_KEY if ring.is_locked else None
    return "the token has expired; ask its issuer for another" if grant.token_end_seconds <= time() else None


def _key_expiry_reason(key: ApiKey | None, before: ApiKey, scope: Scope) -> str | None:
    if key is None:
        return "the key is kept no longer; ask for another"
    status = key_status(key, datetime.now(UTC))
    if status != "active":
        return inactive_key_reason(status)
    if key.owner != before.owner or not does_allow(key.scopes, scope):
        return "the key is another owner's now, or allows less; ask again"
    return None


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)


async def _cancel(task: asyncio.Future[bytes | None]) -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
