"""Sequences of requests of which each needs the answer before: share links, sweeps, launch checks, event streams."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import httpx

from service.client.sending import Event as Heard
from service.client.sending import events_of
from service.features.launch_checks.finished_jobs import ROWS_FILE, SWEEP_SHARD
from service.features.sweeps.rows import sweep_from_bytes
from service.features.sweeps.shards import compute_shard
from tests.api.asking import QUESTION
from tests.api.fake_worker import FakeWorker

SWEEP: dict[str, Any] = {
    "models": ["qwen3-0.6b"],
    "clusters": ["dgx-h100"],
    "layouts": [{"tensor": 1}, {"tensor": 2}],
    "recipes": [{"sequence_length": 4096, "global_batch": 64, "training_tokens": 1e10}],
    "columns": ["gpu_hours", "cost_usd"],
}
STREAM = {"accept": "text/event-stream"}
PRICES = 25


class Sequences:
    """One client that goes through the sequences in turn, on a thread, with pauses."""

    def __init__(self, address: str, pause_seconds: float) -> None:
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.faults: Counter[str] = Counter()
        self._client = httpx.Client(base_url=f"http://{address}", timeout=60)
        self._worker = FakeWorker(self._worker_request)
        self._numbers, self._pause_seconds, self._ended = count(), pause_seconds, Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()

    def share(self) -> None:
        """Share a scenario, open the link, revoke it, find it closed."""
        made = self.ask(
            "POST /v1/scenarios", "/v1/scenarios", 201, json={"name": "shared", "question": self._question()}
        )
        place = made.headers["location"]
        links = self.ask("POST share", f"{place}/share", json={}).json()["links"]
        for link in links.values():
            self.ask("GET shared", link)
        (share,) = self.ask("GET shares", f"{place}/shares").json()["items"]
        self.ask("DELETE share", f"{place}/shares/{share['id']}", 204)
        self.ask("GET revoked", links["scenario"], 401)
        self.ask("DELETE scenario", place, 204, headers={"if-match": made.headers["etag"]})

    def plan(self) -> None:
        """Listen to a search to its end, and hang up on another after its first event."""
        for is_whole in (True, False):
            body = {**self._question(), "layout": {}, "top": 3}
            with self._client.stream("POST", "/v1/plans", json=body, headers=STREAM) as answer:
                self._note("POST plans (stream)", answer.status_code, 200)
                names = [event.name for event in self._events(answer, is_whole=is_whole)]
            self._expect(names[-1] == "plans" if is_whole else bool(names), f"a search's stream says {names}")

    def launch_check(self) -> None:
        """Listen to a launch check while a worker goes through it."""
        body = {"question": QUESTION, "probes": ["gemm"], "on": "any"}
        check = self.ask("POST /v1/launch-checks", "/v1/launch-checks", 202, json=body).json()["id"]
        with self._client.stream("GET", f"/v1/launch-checks/{check}/events") as answer:
            self._note("GET events of a launch check", answer.status_code, 200)
            events = events_of(answer.iter_bytes())
            heard = [next(events).name]
            while (job := self._worker.claim()) is not None:
                self._worker.tell(job, {"probes": [{"probe": "gemm", "status": "running", "done_fraction": 0.5}]})
                records = [self._worker.record(task) for task in job["payload"]["tasks"]]
                status = self._worker.finish(job, result={"records": records})
                self._note("POST finish", status, 204)
            heard += [event.name for event in events]
        self._expect(heard[-1] == "launch_check", f"the stream of a launch check says {heard}")
        found = self.ask("GET launch check", f"/v1/launch-checks/{check}").json()
        self._expect(found["status"] == "succeeded", f"a launch check is {found['status']}")

    def sweep(self) -> None:
        """Listen to a sweep while its pieces are worked out, and read its table."""
        number = next(self._numbers)
        prices = [{"usd_per_gpu_hour": 1 + place / 8 + number / 1e6} for place in range(PRICES)]
        made = self.ask("POST /v1/sweeps", "/v1/sweeps", 202, json={**SWEEP, "name": f"{number}", "prices": prices})
        links = made.json()["links"]
        with self._client.stream("GET", links["events"]) as answer:
            self._note("GET events of a sweep", answer.status_code, 200)
            events = events_of(answer.iter_bytes())
            heard = [next(events).name]
            with tempfile.TemporaryDirectory() as folder:
                while (job := self._worker.claim(SWEEP_SHARD)) is not None:
                    self._work_out(job, Path(folder))
            heard += [event.name for event in events]
        found = self.ask("GET sweep", links["self"]).json()
        self._expect(found["status"] == "succeeded", f"a sweep is {found['status']} after {heard}")
        rows = self.ask("GET rows.csv", links["csv"]).text.splitlines()
        self._expect(len(rows) == 1 + 2 * PRICES, f"the table of a sweep has {len(rows)} lines")
        self.ask("GET rows.parquet", links["parquet"])

    def ask(self, kind: str, path: str, status: int = 200, **request: Any) -> httpx.Response:
        """The answer to one request, whose kind begins with its method; its status is counted, and has to be this."""
        answer = self._client.request(kind.split(maxsplit=1)[0], path, **request)
        self._note(kind, answer.status_code, status)
        return answer

    def _work_out(self, job: dict[str, Any], folder: Path) -> None:
        headers = {"traincost-lease": job["lease"]}
        content = self.ask("GET sweep of a worker", f"/v1/worker/sweeps/{job['payload']['sweep']}", headers=headers)
        counts = compute_shard(sweep_from_bytes(content.content), job["payload"], folder)["counts"]
        headers["content-type"] = "application/vnd.apache.parquet"
        rows = (folder / ROWS_FILE).read_bytes()
        self.ask("PUT file", f"/v1/worker/jobs/{job['id']}/files/{ROWS_FILE}", 204, content=rows, headers=headers)
        self._note("POST finish", self._worker.finish(job, result=counts), 204)

    def _run(self) -> None:
        for sequence in cycle((self.share, self.plan, self.launch_check, self.sweep)):
            if self._ended.wait(self._pause_seconds):
                return
            self._attempt(sequence)

    def _attempt(self, sequence: Callable[[], None]) -> None:
        try:
            sequence()
        except Exception as error:
            self.faults[f"{sequence.__name__}: {type(error).__name__}: {error}"[:300]] += 1

    def _worker_request(self, method: str, path: str, **request: Any) -> httpx.Response:
        return self._client.request(method, path, **request)

    def _question(self) -> dict[str, Any]:
        return {**QUESTION, "price": {"usd_per_gpu_hour": 2 + next(self._numbers) / 1e6}}

    def _note(self, kind: str, found: int, expected: int) -> None:
        self.statuses[kind, found] += 1
        self._expect(found == expected, f"{kind}: {found}")

    def _expect(self, is_so: bool, fault: str) -> None:
        if not is_so:
            self.faults[fault] += 1

    @staticmethod
    def _events(answer: httpx.Response, *, is_whole: bool) -> Iterator[Heard]:
        events = events_of(answer.iter_bytes())
        return events if is_whole else iter([next(events)])
