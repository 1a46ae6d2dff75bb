"""Server-sent events, parsed as the HTML standard defines them.

Source: HTML standard, section 9.2.6, interpreting an event stream. Waiting times are ignored: a client that
reconnects has its own.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LINE_END = re.compile(rb"\r\n|\n|\r")
BYTE_ORDER_MARK = "\ufeff"
UNNAMED = "message"
"""Name of an event without one."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    name: str
    """Which kind of event it is."""
    data: str
    """Its data."""
    id: str = ""
    """What to name as the last one that came, when connecting anew; empty where the stream has no ids."""


def events_of(chunks: Iterable[bytes]) -> Iterator[Event]:
    r"""The events of a stream, each as soon as it is whole.

    Args:
        chunks: the bytes, cut anywhere

    Yields:
        events; one that the end of the stream cuts off is none

    >>> [event.data for event in events_of([b"data: a\r", b"\ndata: b\n\n: a comment\n"])]
    ['a\nb']
    """
    name, data, last_id = "", list[str](), ""
    for place, line in enumerate(_lines(chunks)):
        field, _, value = (line if place else line.removeprefix(BYTE_ORDER_MARK)).partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
        elif not line:
            if data:
                yield Event(name or UNNAMED, "\n".join(data), last_id)
            name, data = "", []


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines of a text that is cut anywhere; a return at the end of a chunk ends its line, whatever follows."""
    rest, returned = b"", False
    for chunk in chunks:
        *whole, rest = LINE_END.split(rest + (chunk.removeprefix(b"\n") if returned else chunk))
        returned = chunk.endswith(b"\r") or (returned and not chunk)
        yield from (line.decode("utf-8", errors="replace") for line in whole)
