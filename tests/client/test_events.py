"""Events of a stream are those of the HTML standard, wherever the bytes are cut."""

from collections.abc import Iterator
from functools import partial

import pytest

from service.client.events import Event, events_of

unnamed = partial(Event, "message")

STREAMS = {
    "one": (b"event: progress\ndata: 1\n\n", [Event("progress", "1")]),
    "no name, no blank": (b"data:1\n\n", [unnamed("1")]),
    "one blank alone is taken away": (b"data:  1 \n\n", [unnamed(" 1 ")]),
    "lines": (b"data: a\ndata\ndata: b\n\n", [unnamed("a\n\nb")]),
    "comments keep a line open": (b": ping\n\n:\ndata: 1\n\n", [unnamed("1")]),
    "ids and waiting times": (
        b"id: 7\nretry: 10\ndata: 1\n\nid: 8\n\ndata: 2\n\nid: \x00\ndata: 3\n\n",
        [Event("message", "1", "7"), Event("message", "2", "8"), Event("message", "3", "8")],
    ),
    "a field that nobody knows": (b"datum: 1\nDATA: 2\ndata: 3\n\n", [unnamed("3")]),
    "a name without data": (b"event: a\n\ndata: 1\n\n", [unnamed("1")]),
    "a colon in the data": (b"data: a: b\n\n", [unnamed("a: b")]),
    "returns": (b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\rdata: 3\n\r\n", [Event("a", "1"), *map(unnamed, "23")]),
    "ends of lines that are none here": (
        "data: \u2028\u0085\x0b\n\n".encode(),
        [unnamed("\u2028\u0085\x0b")],
    ),
    "byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [unnamed("1")]),
    "not UTF-8": (b"data: \xff\n\n", [unnamed("\ufffd")]),
    "cut off": (b"data: 1\n\ndata: 2\n", [unnamed("1")]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize(("stream", "events"), STREAMS.values(), ids=STREAMS)
def test_events_are_read_however_they_arrive(stream: bytes, events: list[Event]) -> None:
    assert list(events_of([stream])) == events
    assert list(events_of(stream[place : place + 1] for place in range(len(stream)))) == events
    for place in range(len(stream)):
        assert list(events_of([stream[:place], b"", stream[place:]])) == events


def test_an_event_is_told_before_the_next_byte() -> None:
    def stalled() -> Iterator[bytes]:
        yield b"data: 1\r\r"
        pytest.fail("the event was whole already")

    assert next(iter(events_of(stalled()))) == unnamed("1")
