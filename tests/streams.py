"""Listeners of launch checks whose streams are cut again and again, and taken up where they were."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from service.client.sending import Event, events_of
from tests.api.asking import QUESTION
from tests.api.fake_worker import FakeWorker

PATH = "/v1/launch-checks"


@dataclass(slots=True)
class Heard:
    """What one listener was told."""

    check_id: str
    events: list[Event] = field(default_factory=list)
    cuts: int = 0
    """How often its stream was cut."""

    def faults(self, last: int) -> Counter[str]:
        """Events that were lost or doubled, of so many."""
        numbers = Counter(int(event.id) for event in self.events if event.name != "launch_check")
        return Counter(
            lost=sum(number not in numbers for number in range(1, last + 1)),
            doubled=numbers.total() - len(numbers),
            disordered=int(list(numbers) != sorted(numbers)),
            unended=int([event.name for event in self.events].count("launch_check") != 1),
        )


class Checks:
    """Launch checks of a service, each with a worker that tells how far it is."""

    def __init__(self, client: httpx.Client, count: int) -> None:
        self.ids: list[str] = []
        self._workers: list[tuple[FakeWorker, dict[str, Any]]] = []
        for place in range(count):
            body = {"question": QUESTION, "probes": ["gemm"]}
            self.ids.append(client.post(PATH, json=body).raise_for_status().json()["id"])
            worker = FakeWorker(client.request, f"w{place}")
            job = worker.claim()
            assert job is not None
            self._workers.append((worker, job))
        self.events = 2

    def tell(self, fraction: float) -> None:
        """One more event of each."""
        for worker, job in self._workers:
            probe = {"probe": "gemm", "status": "running", "done_fraction": fraction}
            assert worker.tell(job, {"probes": [probe]}) == "run"
        self.events += 1

    def finish(self) -> None:
        """Their last event."""
        for worker, job in self._workers:
            assert worker.finish(job, "failed", error={"code": "made_up", "message": "no GPU", "final": True}) == 204
        self.events += 1


@contextmanager
def checks(address: str, count: int) -> Iterator[Checks]:
    """Launch checks that run."""
    with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
        yield Checks(client, count)


async def listen(address: str, heard: Heard, random: Random, whole_seconds: float, cut_seconds: float) -> None:
    """Listen until the launch check has ended, on streams that are cut after some seconds, anywhere."""
    async with asyncio.timeout(whole_seconds):
        while not any(event.name == "launch_check" for event in heard.events):
            got = bytearray()
            try:
                async with asyncio.timeout(random.expovariate(1 / cut_seconds)):
                    await _read(address, heard, got)
            except TimeoutError:
                heard.cuts += 1
            heard.events += (event for event in events_of([_body(bytes(got))]) if event.name != "again")


async def _read(address: str, heard: Heard, got: bytearray) -> None:
    """The bytes of one stream, as they come."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        last = heard.events[-1].id if heard.events else "0"
        path = f"{PATH}/{heard.check_id}/events"
        head = f"GET {path} HTTP/1.0\r\nHost: localhost\r\nLast-Event-ID: {last}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        while part := await reader.read(65536):
            got += part
    finally:
        writer.close()


def _body(answer: bytes) -> bytes:
    """What came of a stream, without its head."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert not head or head.split(b" ", 2)[1] == b"200", head
    return body


def found(heard: Sequence[Heard], last: int) -> Counter[str]:
    """Faults of all listeners."""
    return sum((one.faults(last) for one in heard), Counter())
