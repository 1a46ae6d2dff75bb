"""A sweep over HTTP: kept once, handed out in pieces, each row in its table once, whatever is lost between."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from service.catalogue import shipped_catalogue
from service.features.launch_checks.finished_jobs import ROWS_FILE, SWEEP_SHARD, on_end
from service.features.sweeps.rows import Rows, columns_of, sweep_from_bytes
from service.features.sweeps.schemas import read_sweep
from service.features.sweeps.shards import compute_shard
from service.features.sweeps.sweeps import SHARD_ROWS
from service.jobs.leases import expire_leases
from service.store.engine import later, writing
from service.store.tables import JOBS
from tests.api.asking import Ask
from tests.fixtures import NewUrl, asking, one_by_one, running

BODY: dict[str, Any] = {
    "name": "prices of one job",
    "models": ["qwen3-0.6b"],
    "clusters": ["dgx-h100"],
    "layouts": [{"tensor": 1}, {"tensor": 3}],
    "recipes": [{"sequence_length": 4096, "global_batch": 64, "training_tokens": 1e10}],
    "prices": [{"usd_per_gpu_hour": 1 + place / 8} for place in range(25)],
    "columns": ["gpu_hours", "cost_usd"],
}
ROWS, EACH = 50, 10
PIECES = ROWS // EACH


@pytest.fixture(scope="module")
def sweep_app(new_url: NewUrl) -> Iterator[FastAPI]:
    smaller = f"from service.features.sweeps.sweeps import SHARD_ROWS\nSHARD_ROWS['estimate'] = {EACH}"
    with pytest.MonkeyPatch.context() as patch, running(new_url(), smaller) as started:
        patch.setitem(SHARD_ROWS, "estimate", EACH)
        yield started


@pytest.fixture
def app(sweep_app: FastAPI) -> FastAPI:
    with writing(sweep_app.state.engine) as connection:
        connection.execute(update(JOBS).values(status="succeeded", kind="another", parent=None))
    return sweep_app


@pytest.fixture
def ask(app: FastAPI) -> Iterator[Ask]:
    with asking(app) as together:
        yield one_by_one(together)


class Worker:
    """Works pieces out as a worker does, in the test's own process."""

    def __init__(self, ask: Ask, folder: Path, name: str = "w1") -> None:
        self.ask, self.folder, self.name = ask, folder, name
        self.worked: list[int] = []

    def claim(self) -> dict[str, Any] | None:
        answer = self.ask("POST", "/v1/worker/claim", json={"worker": self.name, "kinds": [SWEEP_SHARD]})
        job: dict[str, Any] | None = answer.json()["job"] if answer.status_code == 200 else None
        return job

    def work(self, job: dict[str, Any]) -> dict[str, Any]:
        headers = {"traincost-lease": job["lease"]}
        content = self.ask("GET", f"/v1/worker/sweeps/{job['payload']['sweep']}", headers=headers).content
        self.worked.append(job["payload"]["number"])
        return compute_shard(sweep_from_bytes(content), job["payload"], self.folder)

    def say(self, job: dict[str, Any], what: str, **said: Any) -> int:
        body = {"lease": job["lease"], **said}
        return self.ask("POST", f"/v1/worker/jobs/{job['id']}/{what}", json=body).status_code

    def keep(self, job: dict[str, Any]) -> int:
        content = (self.folder / ROWS_FILE).read_bytes()
        headers = {"content-type": "application/vnd.apache.parquet", "traincost-lease": job["lease"]}
        place = f"/v1/worker/jobs/{job['id']}/files/{ROWS_FILE}"
        return self.ask("PUT", place, content=content, headers=headers).status_code

    def run(self, most: int = PIECES) -> None:
        for _ in range(most):
            job = self.claim()
            if job is None:
                return
            counts = self.work(job)["counts"]
            assert (self.keep(job), self.say(job, "finish", outcome="succeeded", result=counts)) == (204, 204)


def started(ask: Ask, **changed: Any) -> dict[str, Any]:
    answer = ask("POST", "/v1/sweeps", json={**BODY, **changed})
    assert answer.status_code == 202, answer.text
    sweep: dict[str, Any] = answer.json()
    assert answer.headers["location"] == sweep["links"]["self"]
    return sweep


def state(ask: Ask, sweep: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = ask("GET", sweep["links"]["self"]).json()
    return found


def table(ask: Ask, sweep: dict[str, Any]) -> list[dict[str, Any]]:
    answer = ask("GET", sweep["links"]["parquet"])
    assert answer.status_code == 200
    rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(answer.content)).to_pylist()
    return rows


def expected() -> list[dict[str, Any]]:
    sweep = read_sweep(BODY, shipped_catalogue())
    names = [column.name for column in columns_of(sweep)]
    return [dict(zip(names, cells, strict=True)) for cells in Rows(sweep).of(0, ROWS)]


def test_a_sweep_is_worked_out_piece_by_piece(ask: Ask, tmp_path: Path) -> None:
    sweep = started(ask)
    assert (sweep["status"], sweep["rows"]["total"], sweep["shards"]["queued"]) == ("queued", ROWS, PIECES)
    assert table(ask, sweep) == []
    worker = Worker(ask, tmp_path)
    worker.run(2)
    half = state(ask, sweep)
    assert (half["status"], half["rows"]["kept"], half["done_fraction"]) == ("running", 2 * EACH, 0.4)
    assert table(ask, sweep) == expected()[: 2 * EACH]
    worker.run()
    done = state(ask, sweep)
    assert (done["status"], done["done_fraction"], done["left_seconds"]) == ("succeeded", 1.0, None)
    assert done["rows"] == {"total": 50, "done": 50, "kept": 50, "answered": 25, "refused": 25, "fitting": 25}
    assert done["finished_at"] >= done["created_at"]
    assert worker.worked == list(range(PIECES))
    assert table(ask, sweep) == expected()
    listed = ask("GET", "/v1/sweeps", params={"id": sweep["id"]}).json()["items"]
    assert [(one["status"], one["rows"], one["name"]) for one in listed] == [("succeeded", ROWS, BODY["name"])]


def test_csv_holds_the_rows_in_their_order(ask: Ask, tmp_path: Path) -> None:
    sweep = started(ask)
    Worker(ask, tmp_path).run()
    answer = ask("GET", sweep["links"]["csv"])
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [int(row["row"]) for row in rows] == list(range(ROWS))
    assert [row["cost_usd"] and float(row["cost_usd"]) for row in rows] == [row["cost_usd"] or "" for row in expected()]
    assert ask("HEAD", sweep["links"]["csv"]).headers["etag"] == answer.headers["etag"]
    assert ask("HEAD", sweep["links"]["parquet"]).content == b""


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_that_the_caller_holds_is_not_sent_again(ask: Ask, tmp_path: Path, form: str) -> None:
    sweep = started(ask)
    Worker(ask, tmp_path).run(2)
    path = sweep["links"][form]
    etag = ask("GET", path).headers["etag"]
    for method in ("GET", "HEAD"):
        again = ask(method, path, headers={"If-None-Match": etag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert "content-type" not in again.headers
    Worker(ask, tmp_path).run()
    assert ask("GET", path, headers={"If-None-Match": etag}).status_code == 200


def test_progress_of_what_runs_counts(ask: Ask, tmp_path: Path) -> None:
    sweep = started(ask)
    worker = Worker(ask, tmp_path)
    worker.run(1)
    job = worker.claim()
    assert job is not None
    assert worker.say(job, "heartbeat", progress={"rows": 4}) == 200
    told = state(ask, sweep)
    assert (told["status"], told["rows"]["done"], told["rows"]["kept"]) == ("running", EACH + 4, EACH)
    assert told["left_seconds"] >= 0


def test_what_was_cancelled_and_resumed_does_only_what_is_missing(ask: Ask, tmp_path: Path) -> None:
    sweep = started(ask)
    worker = Worker(ask, tmp_path)
    worker.run(2)
    job = worker.claim()
    assert job is not None
    assert ask("POST", sweep["links"]["cancel"]).json()["status"] == "running"
    assert worker.say(job, "finish", outcome="cancelled") == 204
    stopped = state(ask, sweep)
    assert (stopped["status"], stopped["shards"]["succeeded"], stopped["shards"]["cancelled"]) == ("cancelled", 2, 3)
    assert worker.claim() is None
    assert len(table(ask, sweep)) == 2 * EACH
    assert ask("POST", sweep["links"]["resume"]).json()["status"] == "running"
    later_worker = Worker(ask, tmp_path, "w2")
    later_worker.run()
    assert (worker.worked, later_worker.worked) == ([0, 1], [2, 3, 4])
    assert table(ask, sweep) == expected()
    assert ask("POST", sweep["links"]["resume"]).json()["status"] == "succeeded"


def test_a_lost_worker_leaves_no_row_twice(ask: Ask, app: FastAPI, tmp_path: Path) -> None:
    sweep = started(ask)
    lost = Worker(ask, tmp_path / "lost", "w1")
    lost.folder.mkdir()
    job = lost.claim()
    assert job is not None
    record = lost.work(job)
    assert lost.keep(job) == 204
    with writing(app.state.engine) as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == job["id"]).values(lease_until=later(-1.0)))
    assert expire_leases(app.state.engine, on_end) == 1
    assert lost.say(job, "finish", outcome="succeeded", result=record["counts"]) == 409
    assert lost.keep(job) == 409
    other = Worker(ask, tmp_path, "w2")
    other.run()
    assert sorted(other.worked) == list(range(PIECES))
    assert table(ask, sweep) == expected()


def test_a_piece_is_not_done_without_its_rows(ask: Ask, tmp_path: Path) -> None:
    started(ask)
    worker = Worker(ask, tmp_path)
    job = worker.claim()
    assert job is not None
    counts = worker.work(job)["counts"]
    assert worker.say(job, "finish", outcome="succeeded", result=counts) == 422
    assert worker.keep(job) == 204
    assert worker.say(job, "finish", outcome="succeeded", result={**counts, "rows": EACH - 1}) == 422
    assert worker.say(job, "finish", outcome="succeeded", result=None) == 422
    assert worker.say(job, "finish", outcome="succeeded", result=counts) == 204


def test_other_formulas_answer_nothing(ask: Ask, tmp_path: Path) -> None:
    sweep = started(ask)
    worker = Worker(ask, tmp_path)
    job = worker.claim()
    assert job is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.features.sweeps.shards.FORMULAS_VERSION", "1999.1.1")
        record = worker.work(job)
    assert (record["status"], record["final"]) == ("failed", True)
    error = {"code": "shard_failed", "message": record["reason"], "final": True}
    assert worker.say(job, "finish", outcome="failed", error=error) == 204
    assert state(ask, sweep)["reasons"] == [record["reason"]]
    assert "1999.1.1" in record["reason"]
    assert not list(tmp_path.glob(ROWS_FILE))


def test_what_is_not_there_is_not_found(ask: Ask) -> None:
    for unknown in ("swp_" + "0" * 32, "swp_none"):
        for method, end in (
            ("GET", ""), ("GET", "/events"), ("GET", "/rows.csv"), ("GET", "/rows.parquet"), ("POST", "/cancel"),
            ("POST", "/resume"),
        ):  # fmt: skip
            assert ask(method, f"/v1/sweeps/{unknown}{end}").json()["code"] == "not_found", end
        lost = ask("GET", f"/v1/worker/sweeps/{unknown}", headers={"traincost-lease": "none"})
        assert (lost.status_code, lost.json()["code"]) == (409, "lease_lost")


def test_what_is_wrong_is_refused_as_a_whole(ask: Ask) -> None:
    answer = ask("POST", "/v1/sweeps", json={**BODY, "models": ["qwen3-0.6b", "qwen-99"]})
    assert answer.status_code == 422
    assert [problem["pointer"] for problem in answer.json()["errors"]] == ["/models/1"]


def test_a_sweep_under_an_idempotency_key_is_made_once(ask: Ask) -> None:
    first, second = (ask("POST", "/v1/sweeps", json=BODY, headers={"Idempotency-Key": "once"}) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202), first.text
    assert first.json()["id"] == second.json()["id"]
    reused = ask("POST", "/v1/sweeps", json={**BODY, "name": "another"}, headers={"Idempotency-Key": "once"})
    assert reused.json()["code"] == "key_reused"
