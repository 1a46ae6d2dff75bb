"""Requests are retried where that does no harm and may help; events are those of the HTML standard, however cut."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pytest

from service import __version__
from service.client import Client, Problem, Retries, Unreachable, Unreadable
from service.client.sending import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, Event, events_of

QUESTION = {"model": "a"}
FINE = httpx.Response(200, json={"answers": [{"status": 422, "body": {}}]})
LATER = {"code": "busy", "detail": "others write", "request_id": "r-1", "errors": []}


@dataclass
class Service:
    """Answers one thing after the other, the last one for ever; time passes only while a client waits."""

    answers: list[httpx.Response | Exception]
    requests: list[httpx.Request] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    now: float = 1000.0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def client(self, *, most: int = 4, deadline_seconds: float = 1e6, draw: float = 1.0, **more: Any) -> Client:
        retries = Retries(
            most=most, deadline_seconds=deadline_seconds, sleep=self.sleep, clock=lambda: self.now, draw=lambda: draw
        )
        return Client("http://service.test/below", retries=retries, transport=httpx.MockTransport(self), **more)


def reading(client: Client) -> object:
    return client.choices()


def asking(client: Client) -> object:
    return list(client.batch([("memory", QUESTION)]))


def creating(client: Client) -> object:
    return client.scenarios.create({"name": "a"})


def deleting(client: Client) -> None:
    client.gpus.delete("a", "*")


ACTS = [reading, asking, creating, deleting]
NOT_CONNECTED = [httpx.ConnectError("refused"), httpx.ConnectTimeout("late"), httpx.PoolTimeout("full")]
BROKEN = [httpx.ReadError("reset"), httpx.WriteError("reset"), httpx.RemoteProtocolError("cut off")]
LATE = [httpx.ReadTimeout("late"), httpx.WriteTimeout("late")]
SLOW_DOWN = [httpx.Response(status, json=LATER) for status in (429, 503)]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("failure", [*NOT_CONNECTED, *BROKEN, *LATE, *SLOW_DOWN], ids=str)
def test_what_is_sent_again(act: Callable[[Client], object], failure: httpx.Response | Exception) -> None:
    service = Service([failure, FINE])
    is_sent_again = failure in NOT_CONNECTED or (failure not in LATE and act is not deleting)
    if is_sent_again:
        act(service.client())
    else:
        with pytest.raises(Unreachable if isinstance(failure, Exception) else Problem):
            act(service.client())
    assert len(service.requests) == 1 + is_sent_again
    assert len({request.content for request in service.requests}) == 1
    names = {request.headers.get("idempotency-key") for request in service.requests}
    assert len(names) == 1, "what is made twice is made once"
    assert (names == {None}) == (act is not creating)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 412, 413, 415, 422, 428, 500, 501, 502, 504])
def test_no_other_status_is_asked_for_again(status: int) -> None:
    service = Service([httpx.Response(status, json=LATER, headers={"Retry-After": "1"})])
    with pytest.raises(Problem):
        reading(service.client())
    assert (len(service.requests), service.waits) == (1, [])


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT", "Date": "Fri, 31 Dec 1999 23:59:29 GMT"}, 30),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 -0000", "Date": "Fri, 31 Dec 1999 23:59:49 GMT"}, 10),
        ({"Retry-After": "-7"}, 0),
        ({"Retry-After": "soon"}, 0),
        ({}, 0),
    ],
)
def test_a_wait_is_as_long_as_the_service_asks_for(headers: dict[str, str], seconds: float) -> None:
    service = Service([httpx.Response(503, headers=headers), FINE])
    reading(service.client())
    assert service.waits == [seconds + FIRST_WAIT_SECONDS]


def test_waits_double_up_to_a_bound_and_are_spread() -> None:
    for draw in (0.0, 0.5, 1.0):
        service = Service([httpx.ConnectError("refused")])
        with pytest.raises(Unreachable, match=r"service\.test.*refused"):
            reading(service.client(most=9, draw=draw))
        longest = [min(FIRST_WAIT_SECONDS * 2**n, LONGEST_WAIT_SECONDS) for n in range(9)]
        assert service.waits == [draw * wait for wait in longest]
        assert len(service.requests) == 10


def test_nothing_is_waited_for_that_comes_too_late() -> None:
    service = Service([httpx.Response(429, json=LATER, headers={"Retry-After": "60"})])
    with pytest.raises(Problem, match="429 busy: others write"):
        reading(service.client(deadline_seconds=60))
    assert (len(service.requests), service.waits) == (1, [])
    service = Service([httpx.ConnectError("refused")])
    with pytest.raises(Unreachable):
        reading(service.client(most=1000, deadline_seconds=60))
    assert service.now <= 1060
    assert 8 < len(service.requests) < 14


def test_a_try_takes_no_longer_than_is_left() -> None:
    service = Service([httpx.Response(503, headers={"Retry-After": "40"}), FINE])
    reading(service.client(deadline_seconds=50, timeout=30.0, draw=0.0))
    first, second = (request.extensions["timeout"] for request in service.requests)
    assert set(first.values()) == {30}
    assert set(second.values()) == {10}


def test_no_repetition_where_none_is_wanted() -> None:
    service = Service([httpx.ConnectError("refused")])
    with pytest.raises(Unreachable):
        reading(service.client(most=0))
    assert len(service.requests) == 1


def test_who_asks_says_so_and_shows_a_key() -> None:
    service = Service([FINE])
    reading(service.client(key="a-key"))
    reading(service.client())
    first, second = service.requests
    assert first.headers["User-Agent"] == f"traincost/{__version__}"
    assert (first.headers["Authorization"], second.headers.get("Authorization")) == ("Bearer a-key", None)
    assert str(first.url) == "http://service.test/below/v1/choices"


def test_a_problem_says_what_its_document_says() -> None:
    error = {"pointer": "/layout/tensor", "code": "a_rule", "message": "is wrong", "fix": "mend it"}
    document = {"code": "refused", "detail": "is wrong; mend it", "request_id": "r-1", "errors": [error]}
    with pytest.raises(Problem, match="422 refused: is wrong; mend it") as caught:
        asking(Service([httpx.Response(422, json=document)]).client())
    found = caught.value
    assert (found.status, found.code, found.request_id) == (422, "refused", "r-1")
    (finding,) = found.errors
    assert (finding.pointer, finding.parameter, finding.message) == ("/layout/tensor", None, "is wrong")


@pytest.mark.parametrize("content", [b"<html>Bad Gateway</html>", b"[]", b'"text"', b"", b"\xff"])
def test_what_holds_no_document_is_a_problem_too(content: bytes) -> None:
    answer = httpx.Response(502, content=content, headers={"X-Request-Id": "r-2"})
    with pytest.raises(Problem, match="502 unknown: Bad Gateway") as caught:
        reading(Service([answer]).client())
    assert (caught.value.request_id, caught.value.errors) == ("r-2", ())


def test_a_good_status_without_json_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="no JSON"):
        reading(Service([httpx.Response(200, text="<html>sign in</html>")]).client())


class Broken(httpx.SyncByteStream):
    """Some bytes, and then none."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self.content
        raise httpx.ReadError("reset")


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    answers = iter([httpx.Response(200, stream=Broken(b'{"rec')), httpx.Response(200, json={"recipe": []})])
    retries = Retries(sleep=lambda _: None)
    client = Client("http://t", retries=retries, transport=httpx.MockTransport(lambda _: next(answers)))
    assert client.choices() == {"recipe": []}


@pytest.mark.parametrize("content", [b"", b"event: progress\ndata: {}\n\n"[:10], b": ping\n\n"])
def test_a_search_without_its_answer_is_none(content: bytes) -> None:
    for stream, said in ((httpx.ByteStream(content), "ended"), (Broken(content), "broke off")):
        answer = httpx.Response(200, stream=stream)
        client = Client("http://t", transport=httpx.MockTransport(lambda _, answer=answer: answer))
        with pytest.raises(Unreachable, match=said):
            client.plans(QUESTION, on_progress=print)


def test_no_key_leads_out_of_its_list() -> None:
    service = Service([FINE])
    service.client().gpus.delete("../scenarios/a b", "*")
    assert service.requests[-1].url.raw_path == b"/below/v1/gpus/..%2Fscenarios%2Fa%20b"
    for key in ("", ".", ".."):
        with pytest.raises(ValueError, match="names nothing"):
            service.client().gpus.delete(key, "*")


def test_a_cell_without_a_number_is_unreadable() -> None:
    client = Service([httpx.Response(200, text="#ERR refused: why")]).client()
    with pytest.raises(Unreadable, match="#ERR refused"):
        client.cell("gpu_hours", on_error="text")


def test_an_address_has_a_scheme() -> None:
    with pytest.raises(ValueError, match="http://"):
        Client("localhost:8000")


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
