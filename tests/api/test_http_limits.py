"""A body over its bound never reaches a handler, however it is sent."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from service.api.envelope import ErrorMiddleware
from service.api.limits.http_limits import (
    LARGER_BODY_BYTES,
    MAXIMUM_BODY_BYTES,
    UNCOUNTED_BYTES,
    UPLOAD_BYTES,
    BodyLimit,
)
from service.worker.command import MOST_FILE_BYTES, MOST_RESULT_BYTES
from tests.api.asking import QUESTION
from tests.api.slow_clients import held_bodies
from tests.live import bearer, serving


class Handler:
    """An application that answers with the length of the body, and counts how many it was given."""

    def __init__(self) -> None:
        self.entered = 0

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        self.entered += 1
        length = str(len(message["body"])).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": length})


async def chunks(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


def post(
    limit: BodyLimit,
    content: bytes | AsyncIterator[bytes],
    headers: dict[str, str] | None = None,
    path: str = "/",
) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(ErrorMiddleware(limit)), base_url="http://localhost"
        ) as client:
            return await client.post(path, content=content, headers=headers)

    return asyncio.run(send())


@pytest.mark.parametrize("sizes", [(1,), (1000, 0, 48), (MAXIMUM_BODY_BYTES,), (MAXIMUM_BODY_BYTES - 1, 1)])
def test_a_body_within_the_bound_arrives_whole(sizes: tuple[int, ...]) -> None:
    handler = Handler()
    assert post(BodyLimit(handler), chunks(*sizes)).text == str(sum(sizes))
    assert post(BodyLimit(handler), b"x" * sum(sizes)).text == str(sum(sizes))
    assert handler.entered == 2


@pytest.mark.parametrize(("path", "most"), LARGER_BODY_BYTES.items())
def test_a_path_that_takes_more_has_a_bound_of_its_own(path: str, most: int) -> None:
    handler = Handler()
    for content in (b"x" * most, chunks(most - 1, 1)):
        assert post(BodyLimit(handler), content, path=path).text == str(most)
    for content in (b"x" * (most + 1), chunks(most, 1)):
        refused = post(BodyLimit(handler), content, path=path)
        assert (refused.status_code, refused.json()["detail"]) == (413, f"send at most {most} bytes")
    assert post(BodyLimit(handler), b"x" * (MAXIMUM_BODY_BYTES + 1), path=f"{path}/x").status_code == 413
    assert handler.entered == 2


def test_a_declared_length_over_the_bound_is_refused_before_a_byte_is_read() -> None:
    handler, read = Handler(), []

    async def unread() -> AsyncIterator[bytes]:
        read.append(1)
        yield b"x"

    answer = post(BodyLimit(handler), unread(), {"content-length": str(MAXIMUM_BODY_BYTES + 1)})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert answer.headers["content-type"] == "application/problem+json"
    assert (handler.entered, read) == (0, [])


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "9" * 5000])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    handler = Handler()
    answer = post(BodyLimit(handler), chunks(1), {"content-length": length})
    assert (answer.status_code, handler.entered) == (413, 0)


def test_chunks_over_the_bound_are_refused_at_the_byte_that_is_too_many() -> None:
    handler, sent = Handler(), []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            sent.append(65_536)
            yield b"x" * 65_536

    answer = post(BodyLimit(handler), endless())
    assert (answer.status_code, handler.entered) == (413, 0)
    assert sum(sent) <= MAXIMUM_BODY_BYTES + 65_536


def test_a_body_that_never_ends_is_given_up() -> None:
    handler = Handler()

    async def stalled() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(60)

    answer = post(BodyLimit(handler, maximum_seconds=0.01), stalled())
    assert (answer.status_code, answer.json()["code"], handler.entered) == (408, "body_timeout", 0)


def test_a_request_without_a_body_is_not_waited_for() -> None:
    async def read() -> Message:
        pytest.fail("there is nothing to read")

    async def send(_message: Message) -> None:
        pytest.fail("there is nothing to say")

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        scope["seen"].append(scope["method"])

    scope: Scope = {"type": "http", "method": "GET", "headers": [], "seen": []}
    asyncio.run(BodyLimit(app)(scope, read, send))
    assert scope["seen"] == ["GET"]


class LateReader(Handler):
    """An application that asks for the body, or refuses whoever sends it before it does."""

    def __init__(self, is_stranger: bool) -> None:
        super().__init__()
        self.is_stranger = is_stranger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.is_stranger:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body"})
            return
        await super().__call__(scope, receive, send)


@pytest.mark.parametrize(
    ("path", "most"),
    [("/", MAXIMUM_BODY_BYTES), ("/v1/worker/jobs/a/finish", 8 << 20), ("/v1/worker/jobs/a/files/b", 64 << 20)],
)
def test_a_body_is_read_once_it_is_known_who_sends_it(path: str, most: int) -> None:
    sent: list[int] = []

    async def counted(*sizes: int) -> AsyncIterator[bytes]:
        for size in sizes:
            sent.append(size)
            yield b"x" * size

    reader = LateReader(is_stranger=False)
    assert post(BodyLimit(reader), counted(most - 1, 1), path=path).text == str(most)
    refused = post(BodyLimit(reader), counted(most, 1), path=path)
    assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
    sent.clear()
    assert post(BodyLimit(LateReader(is_stranger=True)), counted(most, 1), path=path).status_code == 401
    assert sent == []


def test_workers_know_how_much_is_taken() -> None:
    assert [*UPLOAD_BYTES.values()] == [MOST_RESULT_BYTES, MOST_FILE_BYTES, MOST_FILE_BYTES]  # the last: a trace


MOST_HELD_BYTES = 1 << 18


class Held(Handler):
    """An application that holds bodies until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.are_over = asyncio.Event()
        self.holds = asyncio.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def whole() -> Message:
            message = await receive()
            self.holds.release()
            await self.are_over.wait()
            return message

        await super().__call__(scope, whole, send)


async def at_once(held: Held, *lengths: int) -> list[int]:
    """Statuses of answers to bodies that are there at the same time, the last of which is sent when the others are."""
    limit = BodyLimit(held, most_reserved_bytes=MOST_HELD_BYTES)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(ErrorMiddleware(limit)), base_url="http://localhost"
    ) as client:
        *earlier, last = [client.post("/", content=b"x" * length) for length in lengths]
        tasks = [asyncio.create_task(one) for one in earlier]
        for _ in earlier:
            await held.holds.acquire()
        tasks.append(asyncio.create_task(last))
        await asyncio.wait(tasks[-1:], timeout=0.05)
        held.are_over.set()
        answers = await asyncio.gather(*tasks)
    assert limit.left_bytes == MOST_HELD_BYTES, "what was held is let go of"
    return [answer.status_code for answer in answers]


def test_bodies_together_take_up_no_more_than_a_bound() -> None:
    most = MOST_HELD_BYTES + UNCOUNTED_BYTES
    for lengths, expected in (
        ((most,), [200]),
        ((most, UNCOUNTED_BYTES), [200, 200]),  # short ones are taken whatever others send
        ((most, UNCOUNTED_BYTES + 1), [200, 503]),
        ((most // 2, most // 2, most // 2), [200, 200, 503]),
        ((most - 1, UNCOUNTED_BYTES + 1), [200, 200]),
    ):
        held = Held()
        assert asyncio.run(at_once(held, *lengths)) == expected, lengths
        assert held.entered == expected.count(200)


def test_who_is_refused_for_others_is_told_when_to_come_again() -> None:
    refused = post(BodyLimit(Handler(), most_reserved_bytes=0), chunks(UNCOUNTED_BYTES, 1))
    assert refused.json()["code"] == "too_many_bodies"
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")


def test_a_body_that_breaks_off_holds_nothing() -> None:
    limit = BodyLimit(Handler(), most_reserved_bytes=MOST_HELD_BYTES, maximum_seconds=0.01)

    async def stalled() -> AsyncIterator[bytes]:
        yield b"x" * MOST_HELD_BYTES
        await asyncio.sleep(60)

    for _ in range(3):
        assert post(limit, stalled()).status_code == 408
    assert limit.left_bytes == MOST_HELD_BYTES


COUNT = 20
MOST_GROWN_BYTES = 5_000_000
BATCH = "/v1/batch"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that asks for keys, asked with one."""
    folder: Path = tmp_path_factory.mktemp("locked")
    headers = bearer(folder, "read")
    with serving(folder) as address, httpx.Client(base_url=f"http://{address}", headers=headers, timeout=30) as client:
        yield client


def resident_bytes(client: httpx.Client) -> float:
    figures = client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in figures if line.startswith("process_resident_memory_bytes "))


def test_strangers_fill_no_memory(locked: httpx.Client) -> None:
    address = (str(locked.base_url.host), int(locked.base_url.port or 0))
    with held_bodies(address, BATCH, LARGER_BODY_BYTES[BATCH], 1) as statuses:
        assert statuses == [401]
    before = resident_bytes(locked)
    with held_bodies(address, BATCH, LARGER_BODY_BYTES[BATCH], COUNT) as statuses:
        grown = resident_bytes(locked) - before
        assert grown < MOST_GROWN_BYTES, f"{grown / 1e6:.1f} MB for {COUNT} bodies of strangers"
    assert statuses == [401] * COUNT


def test_whoever_is_known_is_answered_beside_them(locked: httpx.Client) -> None:
    body = {"questions": [{"kind": "estimate", "body": QUESTION}]}
    told = locked.post(BATCH, json=body)
    assert [one["status"] for one in told.json()["answers"]] == [200]
    refused = locked.post(BATCH, json=body, headers={"Authorization": "Bearer tck_no.body"})
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    assert locked.post(BATCH, json=body).status_code == 200, "the connection goes on"
