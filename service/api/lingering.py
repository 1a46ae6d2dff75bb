"""How does a refusal reach whoever is still sending? A connection that is closed at once would take it back.

A system that gets bytes which nobody reads any more resets the connection, and the other side, or a proxy on the way,
loses what it had not read yet. So the service says that it has no more to say, and throws away what still comes.
"""

from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable
from typing import Any

LINGER_SECONDS = 2.0
"""How long what is sent after the answer is thrown away. Source: a choice; nginx takes 5 s since something came."""


class Lingering:
    """A transport that, where the other side is still sending, is closed a moment later than it is told to.

    Args:
        transport: what carries the bytes
        loop: the event loop
        is_sending: whether the rest of a request is still to come
    """

    def __init__(self, transport: Transport, loop: AbstractEventLoop, is_sending: Callable[[], bool]) -> None:
        self._transport, self._loop, self._is_sending = transport, loop, is_sending
        self._timer: TimerHandle | None = None
        self.is_told = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether it was told to close."""
        return self.is_told or self._transport.is_closing()

    def close(self) -> None:
        """Say nothing more, and close: at once, or once the other side was heard out."""
        if self.is_told:
            return
        self.is_told = True
        if self._transport.is_closing() or not self._is_sending() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        self._transport.resume_reading()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.close)

    def forget(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
