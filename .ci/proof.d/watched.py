"""What counting, timing and limiting add to a request: processor time of an estimate with and without, in turns."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

from fastapi import FastAPI
from starlette.types import Message

from service.api.metrics import Metrics
from service.api.request_context import RequestContext
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.settings import Settings
from service.store.database import prepare_database
from service.store.history import load_catalogue

TURNS = 400
REQUESTS = 10
MOST_RATIO = 1.05
"""Processor time of a request that is counted, timed and limited, over that of one that is not."""
MOST_SCRAPE_SECONDS = 0.2
"""Processor time of a scrape: at four a minute, a hundredth of a core."""

BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 512, "training_tokens": 2e11},
    "layout": {"tensor": 2},
    "cluster": {"gpu": "h100", "gpus": 8},
    "price": {"usd_per_gpu_hour": 2.5},
}


SCOPE: dict[str, Any] = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/estimates",
    "raw_path": b"/v1/estimates",
    "query_string": b"",
    "root_path": "",
    "client": ("192.0.2.1", 4711),
    "server": ("t", 80),
}


class Blind(Metrics):
    """Counts nothing."""

    def begin(self) -> None:
        """Nothing."""

    def end(self, method: str, seen: RequestContext, seconds: float) -> None:
        """Nothing."""


def application(folder: str, *, limit: int) -> FastAPI:
    """A service that others reach, so that callers are limited where there is a limit."""
    url = f"sqlite:///{folder}/traincost.db"
    engine = prepare_database(url, shipped_catalogue())
    settings = Settings(
        database_url=url,
        host="0.0.0.0",  # noqa: S104 - nothing listens
        insecure=True,
        requests_per_minute=limit,
        request_burst=1_000_000,
    )
    return create_app(settings, load_catalogue(engine), engine)


async def answered(app: FastAPI, body: bytes) -> int:
    """Status of the answer to one question, without a server or a client around the application."""
    started: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.append(message["status"])

    headers = [(b"host", b"t"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await app({**SCOPE, "headers": headers, "state": {}}, receive, send)
    return started[0]


async def seconds_of(app: FastAPI, first: int) -> float:
    """Processor seconds of one request, over many that are all different."""
    prices = (2.0 + (first + number) / 1e6 for number in range(REQUESTS))
    bodies = [json.dumps({**BODY, "price": {"usd_per_gpu_hour": price}}).encode() for price in prices]
    began = time.process_time()
    for body in bodies:
        status = await answered(app, body)
    if status != 200:
        sys.exit(f"answered with {status}")
    return (time.process_time() - began) / REQUESTS


async def compared(with_: FastAPI, without: FastAPI) -> tuple[float, float]:
    """The fastest tenth of short turns of each, asked in turns: whatever else the machine does only adds."""
    found: list[list[float]] = [[], []]
    for turn in range(TURNS):
        pairs = list(enumerate((with_, without)))
        for place, app in pairs if turn % 2 else reversed(pairs):  # neither finds what the other left in caches
            found[place].append(await seconds_of(app, (2 * turn + place) * REQUESTS))
    fastest, also_fastest = (quantiles(seconds, n=10)[0] for seconds in found)
    return fastest, also_fastest


def seconds_each(work: Callable[[], object], times: int) -> float:
    """Processor seconds of something."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def scrape_seconds() -> tuple[float, int]:
    """Processor seconds of telling every series that the contract allows five of, and how many bytes that is."""
    contract = json.loads((Path(__file__).parents[2] / "openapi" / "openapi.json").read_text(encoding="utf-8"))
    metrics = Metrics()
    for path, methods in contract["paths"].items():
        for method in methods:
            for status in (200, 304, 401, 422, 429):
                metrics.begin()
                metrics.end(method.upper(), RequestContext("id", route=path, status=status), 0.001)
    return seconds_each(lambda: metrics.exposed("0", None), 20), len(metrics.exposed("0", None))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        watched, blind = application(folder, limit=10_000_000), application(folder, limit=0)
        for guard in blind.user_middleware:
            if "metrics" in guard.kwargs:
                guard.kwargs["metrics"] = Blind()
        with_seconds, without_seconds = asyncio.run(compared(watched, blind))
        watched.state.engine.dispose()
        blind.state.engine.dispose()
    ratio = with_seconds / without_seconds
    metrics, seen = Metrics(), RequestContext("id", route="/v1/estimates", status=200)

    def counted() -> None:
        metrics.begin()
        metrics.end("POST", seen, 0.001)

    print(f"counting and timing one request alone: {1e6 * seconds_each(counted, 20_000):.1f} us of a core")
    print(
        f"/v1/estimates, {TURNS} x {REQUESTS} different questions, fastest tenth: {1e6 * with_seconds:.0f} us counted, "
        f"timed and limited, {1e6 * without_seconds:.0f} us without; ratio {ratio:.3f} (at most {MOST_RATIO})"
    )
    seconds, length = scrape_seconds()
    print(f"a scrape with five statuses of every operation: {1e3 * seconds:.1f} ms of a core, {length / 1e3:.0f} kB")
    if ratio > MOST_RATIO or seconds > MOST_SCRAPE_SECONDS:
        sys.exit("watching costs more than promised")


if __name__ == "__main__":
    main()
