"""How much of the bodies of all requests does a process hold at a time? So much that its memory lasts for all."""

from service.api.problems import ApiError

MOST_HELD_BYTES = 256 << 20
"""Most that bodies hold together. Source: a choice; four of the longest that anybody may send."""
UNCOUNTED_BYTES = 64 << 10
"""What of each body is not counted: the number of connections bounds it, and the server reads ahead as much anyway."""
RETRY_SECONDS = 1
"""When to send a body again that was one too many."""

TOO_MUCH = "the service holds as much of other requests' bodies as it may; send this one again in a moment"


class HeldBytes:
    """What bodies may still take up together.

    Args:
        most_bytes: most that they hold at a time [byte]
    """

    def __init__(self, most_bytes: int) -> None:
        self.left_bytes = most_bytes


class Share:
    """What one body takes up.

    Args:
        held: what all may
    """

    __slots__ = ("_held", "_own_bytes")

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self._own_bytes = 0

    def grow(self, length: int) -> None:
        """Hold more of a body.

        Args:
            length: how long it is so far [byte]

        Raises:
            ApiError: all bodies together are too long
        """
        more = length - UNCOUNTED_BYTES - self._own_bytes
        if more <= 0:
            return
        if more > self._held.left_bytes:
            raise ApiError("too_many_bodies", TOO_MUCH, {"Connection": "close", "Retry-After": str(RETRY_SECONDS)})
        self._held.left_bytes -= more
        self._own_bytes += more

    def release(self) -> None:
        """Hold nothing any more."""
        self._held.left_bytes += self._own_bytes
        self._own_bytes = 0
