"""Own prices by the million: memory, start, answers and changes of a replica."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from urllib.parse import quote

from service.catalogue import Catalogue, PriceRow, shipped_catalogue
from service.store import Engine
from service.store.database import prepare_database
from service.store.history import History, Rows, load_catalogue
from tests.capacity.costs import database_seconds
from tests.load import SETTINGS, Request, asked, keep_asking, peak_bytes, post, processor_seconds, resident_bytes
from tests.mixed import questions
from tests.replicas import Replica, replicas

AT_ONCE = 250_000
"""Rows that one change writes."""
TIMES = 5
"""How often each request is asked."""
PROVIDERS, REGIONS = 40, 100
FOLLOWED_SECONDS = 300.0
"""Longest wait for a replica to take a change over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a catalogue of so many own rows takes."""

    rows: int
    written_seconds: float
    """Until all of them are in the database, in changes of AT_ONCE rows."""
    bytes_per_row: float
    """Memory of a replica for each of them, once it answers."""
    peak_gb: float
    """Most memory that the replica had, at its start or while rows changed."""
    start_seconds: float
    """From the start of a replica until it answers."""
    bare_start_seconds: float
    """The same without own rows."""
    page_ms: float
    """A page of a hundred rows."""
    deep_page_ms: float
    """The page behind a row in the middle."""
    sorted_page_ms: float
    """A page of a hundred rows, the cheapest first."""
    row_ms: float
    """One row by its id."""
    priced_ms: float
    """An estimate with the newest price of a provider."""
    change_seconds: float
    """A row changed by a request, until it is answered."""
    followed_seconds: float
    """A row changed by another process, until this replica answers with it."""
    followed_processor_seconds: float
    """Processor time of the replica for that."""
    followed_database_seconds: float
    """Processor time of PostgreSQL for that."""
    longest_check_ms: float
    """The longest check while rows are changed both ways."""


def price(number: int, gpus: Sequence[str]) -> PriceRow:
    """An own price, of which no two are alike."""
    usd = 1.0 + number % 7919 / 1000
    return PriceRow(
        source="our contracts",
        as_of=f"2026-{1 + number // 28 % 12:02}-{1 + number % 28:02}",
        verified="yes",
        owner="team",
        provider=f"provider-{number % PROVIDERS}",
        instance_type=f"node-{number}",
        gpu=gpus[number // PROVIDERS % len(gpus)],
        gpu_count=8,
        region=f"region-{number // 7 % REGIONS}",
        price_model="on-demand",
        stat="point",
        usd_per_gpu_hour=usd,
        usd_per_instance_hour=8 * usd,
    )


def written(engine: Engine, count: int) -> tuple[History, float]:
    """Write own prices as changes of the catalogue, which the store makes of them; the time it took [second]."""
    history, began = History(engine, load_catalogue(engine)), time.monotonic()
    gpus = sorted(history.view("team").gpus)
    for first in range(0, count, AT_ONCE):
        rows = tuple(price(number, gpus) for number in range(first, min(first + AT_ONCE, count)))
        _changed(history, rows)
    return history, time.monotonic() - began


def _changed(history: History, rows: tuple[PriceRow, ...]) -> Catalogue:
    return history.change("team", lambda _: Rows(put=rows)).catalogue


@contextmanager
def _started(url: str) -> Iterator[tuple[Replica, float]]:
    """A replica, and how long it took until it answered [second]."""
    began = time.monotonic()
    with replicas(url, 1, SETTINGS) as (replica,):
        asked(replica.address, Request("GET", "/readyz"))
        yield replica, time.monotonic() - began


def served(url: str, count: int) -> Served:
    """Write own prices into an empty database, and ask a replica of them; this process is another one meanwhile."""
    engine = prepare_database(url, shipped_catalogue())
    with _started(url) as (replica, bare_start_seconds):
        bare_bytes = resident_bytes(replica.process.pid)
    history, written_seconds = written(engine, count)
    with _started(url) as (replica, start_seconds):
        bytes_per_row = (resident_bytes(replica.process.pid) - bare_bytes) / count
        found = _asked(replica.address, price(count // 2, sorted(history.view("team").gpus)))
        changed = asyncio.run(_changed_meanwhile(replica, history, url))
        peak_gb = peak_bytes(replica.process.pid) / 1e9
    engine.dispose()
    return Served(
        rows=count,
        written_seconds=written_seconds,
        bytes_per_row=bytes_per_row,
        peak_gb=peak_gb,
        start_seconds=start_seconds,
        bare_start_seconds=bare_start_seconds,
        **found,
        **changed,
    )


def _asked(address: str, wanted: PriceRow) -> Mapping[str, float]:
    """Times of what is asked of many rows [millisecond]."""
    middle = json.loads(asked(address, Request("GET", "/v1/prices?provider=provider-20&limit=1")))["next_cursor"]
    query = {"provider": wanted.provider, "region": wanted.region, "price_model": wanted.price_model}
    question = {**next(questions()), "price": query}
    question["cluster"] = {"gpu": wanted.gpu, "gpus": 16}
    return {
        "page_ms": _milliseconds(address, Request("GET", "/v1/prices?limit=100")),
        "deep_page_ms": _milliseconds(address, Request("GET", f"/v1/prices?limit=100&cursor={quote(middle)}")),
        "sorted_page_ms": _milliseconds(address, Request("GET", "/v1/prices?limit=100&sort=usd_per_gpu_hour")),
        "row_ms": _milliseconds(address, Request("GET", f"/v1/prices/{wanted.id}")),
        "priced_ms": _milliseconds(address, post("/v1/estimates", question)),
    }


def _milliseconds(address: str, request: Request) -> float:
    found = []
    for _ in range(TIMES):
        began = time.monotonic()
        asked(address, request)
        found.append(1e3 * (time.monotonic() - began))
    return median(found)


async def _changed_meanwhile(replica: Replica, history: History, url: str) -> Mapping[str, float]:
    """Change a row by a request and one beside the replica, while it is asked for checks all the time."""
    asked_for, ends = questions(), asyncio.Event()

    def next_check() -> Request | None:
        return None if ends.is_set() else post("/v1/check", next(asked_for))

    checks = asyncio.create_task(keep_asking(replica.address, 1, float("inf"), next_check, pause_seconds=0.005))
    try:
        new = {
            "provider": "new",
            "gpu": "h100-sxm5-80gb",
            "usd_per_gpu_hour": 2.0,
            "source": "us",
            "as_of": "2026-11-23",
        }
        began = time.monotonic()
        await asyncio.to_thread(asked, replica.address, post("/v1/prices", new, 201))
        change_seconds = time.monotonic() - began
        followed = await asyncio.to_thread(_followed, replica, history, url)
    finally:
        ends.set()
    found = await checks
    assert not found.faults, found.faults
    return {
        "change_seconds": change_seconds,
        **followed,
        "longest_check_ms": 1e3 * max(took for _, took in found.seconds),
    }


def _followed(replica: Replica, history: History, url: str) -> dict[str, float]:
    """What it takes a replica to answer with a row that another process changed."""
    row = replace(price(0, sorted(history.view("team").gpus)), note="changed")
    history.refresh()
    before = (processor_seconds(replica.process.pid), database_seconds(url))
    revision = _changed(history, (row,)).revision
    began = time.monotonic()
    while time.monotonic() < began + FOLLOWED_SECONDS:
        if json.loads(asked(replica.address, Request("GET", f"/v1/prices/{row.id}")))["note"] == "changed":
            break
        time.sleep(0.02)
    else:
        raise AssertionError(f"the replica never answered with {revision}")
    took = time.monotonic() - began
    return {
        "followed_seconds": took,
        "followed_processor_seconds": processor_seconds(replica.process.pid) - before[0],
        "followed_database_seconds": database_seconds(url) - before[1],
    }
