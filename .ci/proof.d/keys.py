"""Time of a refusal for an unknown key and for a wrong secret, and by how much of a secret is right.

Requests are refused by the whole application, in one process, without a network: what a caller of this machine could
time at best. The kinds take turns, in every order, so that nothing else in the machine falls on one of them alone; one
kind is there twice, which shows what medians differ by that have no reason to. Looking a key up is timed by itself,
too: there the last nanoseconds of a dictionary show, a few of a thousand times as many.
"""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import cycle, permutations
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

from service.api.access.key_rules import KeyRequest, make_key
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.settings import Settings
from service.store.database import prepare_database
from service.store.history import load_catalogue

TRIES = 24_000
"""Requests of each kind."""
KEYS = 200
"""Keys that the service holds."""
BURST = 20
"""Look-ups that are timed together: one alone takes less than a hundred steps of the clock."""
MOST_FRACTION = 0.01
"""Most by which the median of a kind may differ from that of a wrong secret: a hundredth, or what the same kind differs
by from itself, whichever is more."""

FIRST, AGAIN = "wrong secret", "wrong secret, once more"

Kinds = dict[str, list[str]]
Refuse = Callable[[str], Awaitable[None]]


def presented_kinds(made: list[str]) -> Kinds:
    """What a caller may send who does not know a key, each as long as a key."""
    split = [key.split(".") for key in made]
    wrong = [f"{name}.{secret[::-1]}" for name, secret in split]
    return {
        FIRST: wrong,
        AGAIN: wrong,
        "all but the last letter right": [f"{name}.{secret[:-1]}-" for name, secret in split],
        "unknown id": [f"tck_{place:08}.{secret[::-1]}" for place, (_, secret) in enumerate(split)],
    }


def refusing(app: Any) -> Refuse:
    """Sends the application a request with a key, and sees that it is refused."""
    told = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http"}
    path = {"path": "/v1/gpus", "raw_path": b"/v1/gpus", "query_string": b"", "root_path": ""}
    ends = {"client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 8000), "state": {}}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] != 401:
            raise SystemExit(f"a key that is none was answered {message['status']}")

    async def refuse(presented: str) -> None:
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {presented}".encode())]
        await app({**told, **path, **ends, "headers": headers}, receive, send)

    return refuse


async def request_times(refuse: Refuse, kinds: Kinds) -> dict[str, float]:
    """Median time of a refused request, by kind [nanosecond]."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    orders = cycle(permutations(kinds))
    for turn in range(TRIES):
        for kind in next(orders):
            begun = perf_counter_ns()
            await refuse(kinds[kind][turn % KEYS])
            found[kind].append(perf_counter_ns() - begun)
    return {kind: median(values) for kind, values in found.items()}


def look_up_times(ring: Any, kinds: Kinds) -> dict[str, float]:
    """Median time of looking a key up, by kind [nanosecond]."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    orders = cycle(permutations(kinds))
    for turn in range(TRIES // BURST):
        for kind in next(orders):
            presented = kinds[kind][turn * BURST % KEYS :][:BURST]
            begun = perf_counter_ns()
            for one in presented:
                ring.find(one)
            found[kind].append((perf_counter_ns() - begun) / BURST)
    return {kind: median(values) for kind, values in found.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'traincost.db'}"
        engine = prepare_database(url, shipped_catalogue())
        made = [make_key(engine, KeyRequest(name="x", scopes=["read"])).presented for _ in range(KEYS)]
        settings = Settings(database_url=url, requests_per_minute=0)
        app = create_app(settings, load_catalogue(engine), engine)
        kinds = presented_kinds(made)
        gc.disable()
        requests = asyncio.run(request_times(refusing(app), kinds))
        alone = look_up_times(app.state.keys, kinds)
        engine.dispose()
    wrong, noise = requests[FIRST], abs(requests[AGAIN] / requests[FIRST] - 1)
    most = max(MOST_FRACTION, noise)
    print(f"{KEYS} keys, {TRIES} requests of each kind; medians")
    missed = False
    for kind, nanoseconds in requests.items():
        missed |= abs(nanoseconds / wrong - 1) > most
        print(
            f"{kind:30} request {nanoseconds / 1000:7.1f} us {100 * (nanoseconds / wrong - 1):+.2f} %, "
            f"look-up alone {alone[kind]:5.0f} ns {alone[kind] - alone[FIRST]:+4.0f} ns"
        )
    print(f"at most {100 * most:.2f} % of a request is allowed; the same kind twice differs by {100 * noise:.2f} %")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
