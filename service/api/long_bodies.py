"""Bodies that take long to read: in a process of their own, with a deadline, so that nobody waits for them."""

from collections.abc import Callable
from typing import Any

from fastapi import Request

from service.api.compute import compute
from service.errors import Problem, Refused

LONG_BYTES = 32 * 1024
"""Bytes of a body from which it is read in another process."""

MOST_MARKS = 1_000
"""Words and marks of a launcher's text that are read at once, in milliseconds; a file of 300 settings has as many."""

MARKS = (b",", b"=", b":", b".", b"[", b"{", b"#", b"\n", b"\\n")

DEADLINE_SECONDS = 60.0
"""Longest time that such a body is read. Source: a choice; with free cores the longest takes about a second."""

TOO_LATE = Problem(
    field="",
    code="took_too_long",
    message=f"the body takes longer to read than {DEADLINE_SECONDS:.0f} s",
    fix="send less at once, or the part of the file that says how to train",
)


def is_long(content: bytes) -> bool:
    """Whether a body is read in another process, whatever it holds."""
    return len(content) > LONG_BYTES


def is_long_launch(content: bytes) -> bool:
    """Whether a body with a launcher's words is read in another process: it is long, or has many settings."""
    if is_long(content):
        return True
    return len(content) > MOST_MARKS and sum(map(content.count, MARKS)) + len(content.split()) > MOST_MARKS


async def read_apart(request: Request, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function makes of a body in another process.

    Raises:
        Refused: it took too long, or the function refuses the body
        TooBusy: the caller has too many computations, or the service has
    """
    try:
        return await compute(request, function, *arguments, deadline_seconds=DEADLINE_SECONDS)
    except Refused as refused:
        if refused.problems[0].code == TOO_LATE.code:
            raise Refused(TOO_LATE) from None
        raise
