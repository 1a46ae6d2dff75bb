"""Writes under faults of the database and the network, and the state afterwards.

Writers are typed clients that have launch checks made, each known by its time budget, so that a lost one and a second
one show in the database itself. Others ask for estimates and for the health of the process all the time.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

import httpx
from sqlalchemy import func, select

from service.client import Client, ClientError, Retries
from service.store.engine import open_engine, reading
from service.store.tables import LAUNCH_CHECKS
from tests.api.asking import QUESTION
from tests.house.source import ROOT
from tests.prestarted import started

WRITERS = 2
LOOK_SECONDS, REST_SECONDS = 0.1, 0.5
"""Time between two looks during a fault, and after it [second]."""
PATIENT = Retries(most=10_000, deadline_seconds=120.0)
MOST_RECOVERY_SECONDS = 30.0
"""From the end of a fault until changes are taken and a waiting client has its answer."""
MOST_ESTIMATE_SECONDS = 5.0
UNREADY = {"disk full", "database locked", "database gone and back", "database read-only"}
"""Faults that readiness reports: each lasts until it is reported, however slow the machine is."""
STORED = "/v1/launch-checks?limit=1"
TOGETHER, TOGETHER_BUDGET_SECONDS = 8, 59.0
"""Simultaneous requests, and the budget of launch checks that they make: shorter than that of any writer's."""
BODY = {"question": QUESTION, "probes": ["bandwidth"], "on": "any"}


@dataclass
class Figures:
    """What was seen during one fault."""

    fault: str
    statuses: Counter[int] = field(default_factory=Counter)
    reads: Counter[int] = field(default_factory=Counter)
    """Statuses of lists that were read from the database."""
    estimates: int = 0
    worst_estimate_seconds: float = 0.0
    unready: int = 0
    recovery_seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def said(self) -> str:
        """In one line."""
        return (
            f"{self.fault}: writes answered {_counted(self.statuses)}; reads answered {_counted(self.reads)}; "
            f"not ready {self.unready} times; {self.estimates} "
            f"estimates, the slowest in {1e3 * self.worst_estimate_seconds:.0f} ms; all well "
            f"{self.recovery_seconds:.1f} s after its end{''.join(f'; WRONG: {one}' for one in self.wrong)}"
        )


def _counted(statuses: Counter[int]) -> str:
    return ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items())) or "nothing"


class Outages:
    """A service under traffic; writers reach it at `written_at`, which may be a proxy."""

    def __init__(self, address: str, written_at: str, url: str) -> None:
        self.address, self._written_at, self._url = address, written_at, url
        self.acknowledged: dict[float, str] = {}
        self._sent, self._figures, self._lock, self._stop = 0, Figures("before"), Lock(), Event()
        self.lost = self.doubled = -1
        self._last_acknowledged = 0.0
        self._look_seconds = LOOK_SECONDS
        self._looker = httpx.Client(base_url=address, timeout=10, limits=httpx.Limits(max_keepalive_connections=0))
        asks = (self._ask_for_estimates, self._ask_for_health)
        self._threads = [Thread(target=target) for target in (*[self._write] * WRITERS, *asks)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self._until_well(time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._looker.close()
        self._count()

    def under(
        self,
        name: str,
        begin: Callable[[], object],
        end: Callable[[], object],
        seconds: float,
        *,
        can_read: bool = False,
    ) -> Figures:
        """What is seen while something is wrong, and until it is well again."""
        found = self._figures = Figures(name)
        self._look_seconds = LOOK_SECONDS
        begin()
        try:
            if can_read:
                self._read_together()
            time.sleep(seconds)
            if name in UNREADY:
                self._until_unready(found)
        finally:
            end()
        ended = time.monotonic()
        self._look_seconds = REST_SECONDS
        self._until_well(ended)
        found.recovery_seconds = time.monotonic() - ended
        self._figures = Figures("after")
        if found.recovery_seconds > MOST_RECOVERY_SECONDS:
            found.wrong.append("it does not recover")
        if not found.estimates or found.worst_estimate_seconds > MOST_ESTIMATE_SECONDS:
            found.wrong.append("estimates are not answered")
        if can_read and set(found.reads) != {200}:
            found.wrong.append("what is stored cannot be read")
        if name in UNREADY and not found.unready:
            found.wrong.append("readiness does not report it")
        if can_read and not self._all_write():
            found.wrong.append("some connections to the database still take no changes")
        return found

    def _read_together(self) -> None:
        """Read from so many threads that connections to the database are opened anew."""

        def read(_: int) -> int:
            return self._looker.get(STORED).status_code

        with ThreadPoolExecutor(TOGETHER) as pool:
            self._figures.reads.update(pool.map(read, range(2 * TOGETHER)))

    def _all_write(self) -> bool:
        """Whether every one of some simultaneous writes is taken, at the second attempt at the latest."""

        def write(_: int) -> int:
            return self._looker.post(
                "/v1/launch-checks", json={**BODY, "time_budget_seconds": TOGETHER_BUDGET_SECONDS}
            ).status_code

        with ThreadPoolExecutor(TOGETHER) as pool:
            attempts = [set(pool.map(write, range(TOGETHER))) for _ in range(2)]
        return attempts[1] == {202}

    def _count(self) -> None:
        """Look for acknowledged writes in the database, and for any that are there twice."""
        budget, engine = LAUNCH_CHECKS.c.time_budget_seconds, open_engine(self._url)
        with reading(engine) as connection:
            counts = {row[0]: row[1] for row in connection.execute(select(budget, func.count()).group_by(budget))}
            ids = set(connection.execute(select(LAUNCH_CHECKS.c.id)).scalars())
        engine.dispose()
        self.lost = sum(check_id not in ids for check_id in self.acknowledged.values())
        self.doubled = sum(count > 1 for budget, count in counts.items() if budget != TOGETHER_BUDGET_SECONDS)

    def _until_unready(self, found: Figures) -> None:
        ends = time.monotonic() + MOST_RECOVERY_SECONDS
        while not found.unready and time.monotonic() < ends:
            time.sleep(0.05)

    def _until_well(self, since: float) -> None:
        ends = time.monotonic() + 2 * MOST_RECOVERY_SECONDS
        while time.monotonic() < ends:
            if self._last_acknowledged > since and self._is_ready():
                return
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return self._looker.get("/readyz").status_code == 200
        except httpx.RequestError:
            return False

    def _write(self) -> None:
        with Client(self._written_at, timeout=60.0, retries=PATIENT, transport=_Watched(self._saw)) as client:
            while not self._stop.is_set():
                with self._lock:
                    self._sent += 1
                    budget = 60.0 + self._sent / 1024
                begun = time.monotonic()
                try:
                    made = client.launch_checks.create({**BODY, "time_budget_seconds": budget})
                except ClientError as error:
                    self._figures.wrong.append(f"a client gave up: {error}")
                    continue
                self.acknowledged[budget] = made.id
                self._last_acknowledged = max(self._last_acknowledged, begun)
                time.sleep(0.02)

    def _saw(self, response: httpx.Response) -> None:
        status = response.status_code
        self._figures.statuses[status] += 1
        if status >= 500 and status != 503:
            self._figures.wrong.append(f"a write is answered {status}")
        if status == 503 and "Retry-After" not in response.headers:
            self._figures.wrong.append("a 503 does not say when to come back")

    def _ask_for_estimates(self) -> None:
        with httpx.Client(base_url=self.address, timeout=60) as http:
            while not self._stop.is_set():
                figures, started = self._figures, time.monotonic()
                answer = http.post("/v1/estimates", json=QUESTION)
                seconds = time.monotonic() - started
                figures.estimates += 1
                figures.worst_estimate_seconds = max(figures.worst_estimate_seconds, seconds)
                if answer.status_code != 200:
                    figures.wrong.append(f"an estimate is answered {answer.status_code}")
                self._stop.wait(self._look_seconds)

    def _ask_for_health(self) -> None:
        with httpx.Client(base_url=self.address, timeout=60) as http:
            while not self._stop.is_set():
                figures = self._figures
                if (status := http.get("/healthz").status_code) != 200:
                    figures.wrong.append(f"liveness is {status}")
                if (status := http.get("/readyz").status_code) not in {200, 503}:
                    figures.wrong.append(f"readiness is {status}")
                figures.unready += status == 503
                figures.reads[http.get(STORED).status_code] += 1
                self._stop.wait(self._look_seconds)


class _Watched(httpx.BaseTransport):
    """The network, with an eye on every answer."""

    def __init__(self, see: Callable[[httpx.Response], None]) -> None:
        self._network, self._see = httpx.HTTPTransport(), see

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it."""
        response = self._network.handle_request(request)
        self._see(response)
        return response

    def close(self) -> None:
        """Give the connections back."""
        self._network.close()


@contextmanager
def service_on(url: str, clock: Path | None = None) -> Iterator[tuple[str, Any]]:
    """Host and port of a service, and its process; the clock of its SQLite runs ahead by the seconds in a file."""
    module = ["service"] if clock is None else ["tests.jumping_clock", str(clock)]
    environment = {**os.environ, "TRAINCOST_DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    words = [*module, "serve", "--port", "0", "--no-worker"]
    with ExitStack() as stack:
        nowhere = stack.enter_context(Path(os.devnull).open("w"))
        server = started(words, None, environment, nowhere)
        stack.enter_context(server)
        stack.callback(server.terminate)
        said = next(line for line in server.stdout or () if "http://" in line)
        yield said.split("http://")[1].split(" ")[0], server
