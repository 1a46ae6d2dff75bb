"""Databases that earlier versions wrote over HTTP, upgraded: every row is kept, answered and may be changed."""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx

from service.store.database import HEAD, revision_in
from service.store.engine import open_engine, reading
from tests.api.asking import CHOSEN, QUESTION, RECORDS
from tests.api.fake_worker import FakeWorker
from tests.api.own_bodies import OWN
from tests.databases import new_database, serving
from tests.house.source import ROOT
from tests.store.earlier import FOLDER, Recording, faults_of_upgrade, rows_in

VERSIONS = {
    "0001": "0bf1640",
    "0003": "c31efa9",
    "0006": "ae9cdbc",
    "0007": "93d96cd",
    "0009": "3981005",
    "0015": "9f072ce",
    "0016": "6b19264",
    "0017": "099f24a",
}
"""Commits whose newest revision was this one; the revisions between came together with one of these."""
MEASURED = {
    "model": "smollm2-135m", "recipe": {"sequence_length": 2048}, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
}  # fmt: skip
SWEPT = {
    "name": "prices of one job",
    "models": ["qwen3-0.6b"],
    "clusters": ["dgx-h100"],
    "layouts": [{"tensor": 1}],
    "recipes": [{"sequence_length": 4096, "global_batch": 64, "training_tokens": 1e10}],
    "prices": [{"usd_per_gpu_hour": 1 + place / 8} for place in range(5)],
    "columns": ["gpu_hours", "cost_usd"],
}
OWNERS = ("vision", "language")


class Earlier:
    """A running service of an earlier version.

    Args:
        address: where it answers
        command: runs one command of that version on its database
    """

    def __init__(self, address: str, folder: Path, environment: dict[str, str]) -> None:
        self.http = httpx.Client(base_url=f"http://{address}", timeout=60)
        self._folder, self._environment = folder, environment
        self.paths = self.http.get("/openapi.json").json()["paths"]
        self.answers: list[list[Any]] = []
        self.keys: dict[str, str] = {}

    def has(self, path: str) -> bool:
        """Whether the version knows a path."""
        return path in self.paths

    def run(self, *words: str) -> str:
        """What a command of that version prints."""
        done = subprocess.run(
            [sys.executable, "-m", "service", *words],
            cwd=self._folder, env=self._environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def send(self, method: str, path: str, by: str = "", **request: Any) -> httpx.Response:
        """Send a request that has to succeed."""
        headers = {**self.bearer(by), **request.pop("headers", {})}
        answer = self.http.request(method, path, headers=headers, **request)
        if answer.is_error:
            sys.exit(f"{method} {path} is answered {answer.status_code}: {answer.text[:1000]}")
        return answer

    def note(self, path: str, by: str = "") -> Any:
        """Read something and keep the answer."""
        self.answers.append([path, by, self.send("GET", path, by).json()])
        return self.answers[-1][2]

    def bearer(self, by: str) -> dict[str, str]:
        """Headers with a key, where that version has keys."""
        return {"Authorization": f"Bearer {self.keys[by]}"} if by in self.keys else {}

    def fill(self) -> None:
        """Write whatever that version can keep."""
        if self.has("/v1/scenarios/{scenario_id}/share"):  # came with keys
            for owner in OWNERS:  # at first, whatever a key wrote was the team's
                self._make_key(owner, owner if self.has("/v1/launch-checks") else "team", "write")
            self._make_key("left", "team", "read")
            if self.has("/v1/sweeps"):
                self._make_key("worker", "team", "worker")
                self._make_key("admin", "team", "admin")
        for owner in OWNERS if self.keys else ("",):
            self._fill_own_rows(owner)
            self._fill_scenarios(owner)
        self._fill_checks()
        if self.has("/v1/launch-checks"):
            self._fill_launch_checks(OWNERS[0])
            self._fill_calibrations(OWNERS[0])
            self._fill_sweeps(OWNERS[1])
        self._note_lists()

    def _make_key(self, name: str, owner: str, scope: str) -> None:
        said = self.run("keys", "create", "--name", name, "--owner", owner, "--scope", scope, "--json")
        made = json.loads(said)
        key = next(
            value for value in made.values() if isinstance(value, str) and re.fullmatch(r"tck_[\w-]+\.\S+", value)
        )
        self.keys[name] = key
        ends = time.monotonic() + 120
        path = "/v1/models?limit=1"
        while {self.http.get(path, headers=sent).status_code == 401 for sent in ({}, self.bearer(name))} != {
            True,
            False,
        }:
            if time.monotonic() > ends:
                sys.exit("a key is not taken")
            time.sleep(0.2)

    def _fill_own_rows(self, owner: str) -> None:
        for own in OWN:
            if not self.has(f"/v1/{own.plural}") or "post" not in self.paths[f"/v1/{own.plural}"]:
                continue
            for number in range(3):
                slug = f"{owner or 'ours'}-{own.plural}-{number}"
                made = self.send("POST", f"/v1/{own.plural}", owner, json=own.named(slug))
                path = made.headers["location"]
                if number > 0:
                    headers = {"If-Match": made.headers["etag"]}
                    changed = self.send("PATCH", path, owner, json=own.change, headers=headers)
                if number > 1:
                    self.send("DELETE", path, owner, headers={"If-Match": changed.headers["etag"]})
                else:
                    self.note(path, owner)

    def _fill_scenarios(self, owner: str) -> None:
        if not self.has("/v1/scenarios"):
            return
        for number in range(2):
            body = {"name": f"{owner} plan {number} ü", "question": QUESTION}
            made = self.send(
                "POST", "/v1/scenarios", owner, json=body,
                headers={"Idempotency-Key": f"{owner}-{number}"} if self.has("/v1/launch-checks") else {},
            )  # fmt: skip
            path = made.headers["location"]
            if number:
                question = {**QUESTION, "price": {"usd_per_gpu_hour": 3.25}}
                self.send(
                    "PATCH", path, owner, json={"note": "dearer", "question": question},
                    headers={"If-Match": made.headers["etag"]},
                )  # fmt: skip
            found = self.note(path, owner)
            self._note_estimate(found, owner)
            if self.has("/v1/scenarios/{scenario_id}/share"):
                links = self.send("POST", f"{path}/share", owner, json={"days": 300}).json()["links"]
                shared = next(link for link in links.values() if "?share=" in link and ".xlsx" not in link)
                shared = f"/{shared.split('://')[-1].split('/', 1)[-1]}"
                self.note(shared)

    def _note_estimate(self, scenario: dict[str, Any], owner: str) -> None:
        found = re.findall(r"est_\w+", json.dumps(scenario))
        for estimate_id in sorted(set(found)):
            self.note(f"/v1/estimates/{estimate_id}", owner)

    def _fill_checks(self) -> None:
        if not self.has("/v1/estimates/{estimate_id}"):
            return
        owner = OWNERS[0] if self.keys else ""
        said = self.send("POST", "/v1/check", owner, json={**QUESTION, "layout": {"tensor": 4}}).json()
        path = next((f"/v1/estimates/{one}" for one in re.findall(r"est_\w+", json.dumps(said))), None)
        ends = time.monotonic() + 10
        while path and time.monotonic() < ends:
            if self.http.get(path, headers=self.bearer(owner)).status_code == 200:
                self.note(path, owner)
                return
            time.sleep(0.2)

    def _fill_launch_checks(self, owner: str) -> None:
        worker = FakeWorker(self._asking("worker"), "lab")
        body = {"question": MEASURED, "on": "any", "probes": ["bandwidth", "gemm"], "time_budget_seconds": 60}
        ids = []
        for outcome in ("succeeded", "cancelled", "queued"):
            check_id = self.send("POST", "/v1/launch-checks", owner, json=body).json()["id"]
            ids.append(check_id)
            if outcome == "succeeded":
                self._work(worker)
            elif outcome == "cancelled":
                self.send("POST", f"/v1/launch-checks/{check_id}/cancel", owner)
        for check_id in ids:
            self.note(f"/v1/launch-checks/{check_id}", owner)

    def _work(self, worker: FakeWorker) -> None:
        """Do one job as workers did that named themselves, and had no token."""
        job = worker.claim()
        if job is None:
            sys.exit("a worker is given no job")
        path, holder = f"/v1/worker/jobs/{job['id']}", {"worker": worker.name, "attempt": job["attempt"]}
        records = [worker.record(task) for task in job["payload"]["tasks"]]
        for number in range(len(records)):
            self.send("POST", f"{path}/heartbeat", "worker", json={**holder, "progress": {"done": number}})
        self.send(
            "PUT", f"{path}/files/trace.json.gz", "worker", content=b"\x1f\x8btrace", params=holder,
            headers={"content-type": "application/gzip"},
        )  # fmt: skip
        ended = {**holder, "outcome": "succeeded", "result": {"records": records}}
        self.send("POST", f"{path}/finish", "worker", json=ended)

    def _asking(self, by: str) -> Any:
        def ask(method: str, path: str, **request: Any) -> httpx.Response:
            return self.send(method, path, by, **request)

        return ask

    def _fill_calibrations(self, owner: str) -> None:
        slower = deepcopy(RECORDS)
        slower |= {"run": "node-8"}
        for one in slower["records"][0]["measurements"]:
            one |= {part: one[part] * 1.125 for part in ("low", "value", "high")}
        for body in (RECORDS, slower):
            ids = self.send("POST", "/v1/measurements", owner, json=body).json()["ids"]
        self.send("POST", "/v1/measurements/quarantine", owner, json={"ids": ids[:1], "reason": "a broken fan"})
        made = self.send("POST", "/v1/calibrations", owner, json=CHOSEN).json()["id"]
        self.send("POST", f"/v1/calibrations/{made}/promote", owner)
        draft = self.send("POST", "/v1/calibrations", owner, json={**CHOSEN, "runs": ["node-8"]}).json()["id"]
        for one in (made, draft):
            self.note(f"/v1/calibrations/{one}", owner)

    def _fill_sweeps(self, owner: str) -> None:
        made = self.send("POST", "/v1/sweeps", owner, json=SWEPT).json()["id"]
        self.note(f"/v1/sweeps/{made}", owner)

    def _note_lists(self) -> None:
        for plural in ("scenarios", "measurements", "calibrations", "launch-checks", "sweeps"):
            if "get" in self.paths.get(f"/v1/{plural}", {}):
                for one in OWNERS if self.keys else ("",):
                    self.note(f"/v1/{plural}?limit=1000", one)


@contextmanager
def earlier(revision: str, url: str, folder: Path) -> Iterator[Earlier]:
    """The service of an earlier version on a database."""
    packed = subprocess.run(
        ["git", "archive", VERSIONS[revision], "service", "migrations", "pyproject.toml"],  # noqa: S607 - the checkout's own git
        cwd=ROOT, capture_output=True, check=True,
    ).stdout  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    environment = {
        **os.environ, "PYTHONPATH": str(folder), "TRAINCOST_DATABASE_URL": url, "TRAINCOST_REQUESTS_PER_MINUTE": "0",
    }  # fmt: skip
    words = [sys.executable, "-m", "service", "serve", "--port", "0"]
    rooms = [*folder.glob("service/cli/*.py"), *folder.glob("service/commands/*.py")]
    commands = "".join(file.read_text(encoding="utf-8") for file in rooms)
    words += ["--no-worker"] if "--no-worker" in commands else []
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            said = (re.search(r"http://([\d.]+:\d+)", line) for line in server.stdout or ())
            found = next((match for match in said if match), None)
            if found is None:
                sys.exit(f"the service at {revision} ended before it said its address")
            yield Earlier(found[1], folder, environment)
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(30)


def written(revision: str, url: str) -> tuple[Recording, float]:
    """What the code of an earlier version writes into an empty database, and how long that takes [second]."""
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="traincost-upgrades-") as code,
        earlier(revision, url, Path(code)) as service,
    ):
        service.fill()
    engine = open_engine(url)
    with reading(engine) as connection:
        if (found := revision_in(connection)) != revision:
            sys.exit(f"that version makes revision {found}, not {revision}")
        rows = rows_in(connection)
    engine.dispose()
    return Recording(revision, rows, service.answers, service.keys), time.monotonic() - started


def upgraded(revision: str, which: str, url: str) -> list[str]:
    """Write a database with the code of an earlier version and upgrade it; what is lost."""
    recorded, seconds = written(revision, url)
    started, engine = time.monotonic(), open_engine(url)
    found = faults_of_upgrade(engine, url, recorded)
    engine.dispose()
    print(
        f"{which} {revision}: {sum(map(len, recorded.rows.values())):,} rows in {len(recorded.rows)} tables and "
        f"{len(recorded.answers)} answers, written by {VERSIONS[revision]} in {seconds:.0f} s; upgraded to {HEAD}, "
        f"read and changed in {time.monotonic() - started:.0f} s: {len(found)} lost, otherwise, or not changeable",
        flush=True,
    )
    return [f"{which} {revision}: {one}" for one in found]


def record(revision: str) -> None:
    """Keep what the tests upgrade."""
    with tempfile.TemporaryDirectory(prefix="traincost-upgrades-") as folder:
        recorded, _ = written(revision, f"sqlite:///{folder}/traincost.db")
    FOLDER.mkdir(exist_ok=True)
    recorded.write(FOLDER / f"{revision}.json.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--revision", choices=[*VERSIONS], action="append")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    parser.add_argument("--record", action="store_true", help="write what the tests upgrade anew")
    given = parser.parse_args()
    wrong: list[str] = []
    for revision in given.revision or VERSIONS:
        if given.record:
            record(revision)
            continue
        for which in given.database or ("sqlite", "postgresql"):
            with empty_database(which) as url:
                wrong += upgraded(revision, which, url)
    if wrong:
        sys.exit("\n".join(wrong[:20]))


@contextmanager
def empty_database(which: str) -> Iterator[str]:
    """The URL of an empty database of a kind."""
    with tempfile.TemporaryDirectory(prefix="traincost-upgrades-") as folder:
        if which == "sqlite":
            yield f"sqlite:///{folder}/traincost.db"
            return
        with serving() as (server, reason):
            if server is None:
                sys.exit(f"PostgreSQL cannot be started here: {reason}")
            with new_database(server) as url:
                yield url


if __name__ == "__main__":
    main()
