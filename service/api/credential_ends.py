"""The end of requests whose credential ends: event streams, and workers that wait for a job.

One task for all of them asks, some times a second, whether the key or token that let each in still would. Keys are in
memory, and what other processes revoke is there within half a second.
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
from service.store import ApiKey, KeyRing, Scope

POLL_SECONDS = 0.2
"""Time between two questions whether it still would. Source: a choice; a second, with what keys take to be seen."""


def refuse_expired(request: Request) -> None:
    """Refuse a request whose credential would let it in no more; AccessDenied gives the reason."""
    reason = _expiry_reason(request.app.state.keys, request.scope["state"].get(GRANT))
    if reason is not None:
        raise unauthorized(reason)


async def while_authorized(request: Request, events: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Events until they end, or what let their reader in ends: then the last one is a problem that says why."""
    ends: CredentialWatch = request.app.state.credential_ends
    async with aclosing(events):
        with ends.watched(request) as ended:
            while True:
                following = asyncio.ensure_future(_next(events))
                either: set[asyncio.Future[Any]] = {following, ended}
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not following.done() or ended.done():
                        await _cancelled(following)
                if ended.done():
                    yield b"event: problem\ndata: " + bytes(problem_of(request, ended.result()).body) + b"\n\n"
                    return
                event = following.result()
                if event is None:
                    return
                yield event


class CredentialWatch:
    """Requests that last, and what let each in."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._watched: dict[asyncio.Future[AccessDenied], Grant | None] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self, request: Request) -> Iterator[asyncio.Future[AccessDenied]]:
        """A future that gets the refusal once what let a request in would no more."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[AccessDenied] = loop.create_future()
        self._watched[ended] = request.scope["state"].get(GRANT)
        if self._looking is None or self._looking.done() or self._looking.get_loop() is not loop:
            self._looking = loop.create_task(self._look(), context=Context())
        try:
            yield ended
        finally:
            del self._watched[ended]

    async def _look(self) -> None:
        while self._watched and self._looking is asyncio.current_task():
            for ended, admitted in [*self._watched.items()]:
                reason = None if ended.done() else _expiry_reason(self._ring, admitted)
                if reason is not None:
                    ended.set_result(unauthorized(reason))
            await asyncio.sleep(POLL_SECONDS)


def _expiry_reason(ring: KeyRing, admitted: Grant | None) -> str | None:
    """Why what let a request in would no more; None where it would."""
    if admitted is None:
        return None
    if admitted.key is not None:
        return _key_expiry_reason(ring.known(admitted.key.id), admitted.key, admitted.scope)
    if admitted.token_end_seconds is None:
        return NO_KEY if ring.is_locked else None
    return "the token has expired; ask its issuer for another" if admitted.token_end_seconds <= time() else None


def _key_expiry_reason(key: ApiKey | None, before: ApiKey, scope: Scope) -> str | None:
    if key is None:
        return "the key is kept no longer; ask for another"
    standing = key_status(key, datetime.now(UTC))
    if standing != "active":
        return inactive_key_reason(standing)
    if key.owner != before.owner or not does_allow(key.scopes, scope):
        return "the key is another owner's now, or allows less; ask again"
    return None


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)


async def _cancelled(task: asyncio.Future[bytes | None]) -> None:
    """Wait until a task is no more."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
