"""A launch check from request to verdict: worker, events, cancellation and lists."""

import gzip
from typing import Any

import httpx
import pytest

from tests.api.asking import Ask
from tests.api.fake_worker import FakeWorker

PATH = "/v1/launch-checks"
QUESTION: dict[str, Any] = {
    "model": "smollm2-135m",
    "recipe": {"sequence_length": 2048},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
}


def create(ask: Ask, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return ask("POST", PATH, json={"question": QUESTION, **body}, headers=headers or {})


def probes(found: dict[str, Any]) -> dict[str, Any]:
    return {one["probe"]: one for one in found["probes"]}


def test_it_is_queued_with_its_question_kept_and_its_shapes_told(ask: Ask) -> None:
    answer = create(ask, time_budget_seconds=60)
    found = answer.json()
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"{PATH}/{found['id']}"
    assert (found["status"], found["on"], found["verdict"], found["comparable"]) == ("queued", "any", None, None)
    assert found["question"] == QUESTION
    assert {one["status"] for one in found["probes"]} == {"queued"}
    assert len(found["probes"]) == 8
    kept = ask("GET", f"/v1/estimates/{found['estimate_id']}").json()
    assert kept["id"] == found["estimate_id"]
    assert kept["memory"]["device_peak_bytes"] == found["estimate"]["before"]["device_peak_bytes"]
    assert ask("GET", answer.headers["location"]).json() == found


def test_a_processor_measures_every_probe_and_the_verdict_is_caution(ask: Ask) -> None:
    worker = FakeWorker(ask)
    check_id = create(ask).json()["id"]
    job = worker.claimed()
    tasks = job["payload"]["tasks"]
    assert (job["id"], [task["probe"] for task in tasks]) == (check_id, [*probes(create(ask).json())])
    assert {task["parameters"]["device"] for task in tasks} == {"cpu"}
    worker.upload(job, "trace.json.gz", gzip.compress(b'{"traceEvents": []}'))
    assert worker.finish(job, result={"records": [worker.record(task) for task in tasks]}) == 204
    found = ask("GET", f"{PATH}/{check_id}").json()
    assert (found["status"], found["verdict"], found["comparable"]) == ("succeeded", "caution", False)
    assert "not_comparable" in {reason["code"] for reason in found["reasons"]}
    assert {one["status"] for one in found["probes"]} == {"succeeded"}
    steps = probes(found)["step"]["measurements"]
    assert [one["predicted"] is None for one in steps] == [False, False, True, True]
    assert {one["predicted"] for one in probes(found)["gemm"]["measurements"]} == {None}
    (live, seconds) = found["depths"]
    assert (live["depths"], live["layers"], seconds["predicted"]) == ([1, 2], 30, None)
    assert live["each_layer"] == pytest.approx(1e9)
    assert seconds["measured"] == pytest.approx(0.03)
    assert found["estimate"]["after"] is None
    assert found["files"] == ["trace.json.gz"]
    trace = ask("GET", f"{PATH}/{check_id}/trace")
    assert gzip.decompress(trace.content) == b'{"traceEvents": []}'
    assert trace.headers["content-disposition"].endswith(f'{check_id}.pt.trace.json.gz"')


def test_the_own_gpu_is_compared_and_its_rates_move_the_estimate(ask: Ask) -> None:
    worker = FakeWorker(ask, gpu=True)
    assert worker.claim() is None
    found = create(ask, probes=["gemm", "bandwidth"]).json()
    assert (found["on"], len(found["probes"])) == ("matching", 2)
    assert FakeWorker(ask, "cpu").claim() is None
    job = worker.claimed()
    assert worker.finish(job, result={"records": [worker.record(task) for task in job["payload"]["tasks"]]}) == 204
    found = ask("GET", f"{PATH}/{found['id']}").json()
    assert (found["comparable"], found["verdict"]) == (True, "no-go")
    products = probes(found)["gemm"]["measurements"]
    assert all(one["ratio"] == one["measured"]["value"] / one["predicted"]["value"] > 2 for one in products)
    assert {reason["code"] for reason in found["reasons"]} == {"broken_rate"}
    before, after = found["estimate"]["before"], found["estimate"]["after"]
    assert after["step_seconds"]["value"] > before["step_seconds"]["value"]
    assert after["step_seconds"]["basis"] == "calibrated"


def test_what_ran_on_another_gpu_than_the_cluster_s_is_not_taken_for_it(ask: Ask) -> None:
    worker = FakeWorker(ask, "mixed", gpu=True)
    worker.claim()
    check_id = create(ask, probes=["gemm"], on="matching").json()["id"]
    job = worker.claimed()
    other = {**worker.environment, "device": "NVIDIA A100-SXM4-80GB"}
    records = [worker.record(task, environment=other) for task in job["payload"]["tasks"]]
    assert worker.finish(job, result={"records": records}) == 204
    found = ask("GET", f"{PATH}/{check_id}").json()
    assert (found["comparable"], found["verdict"], found["estimate"]["after"]) == (False, "caution", None)
    assert [reason["code"] for reason in found["reasons"]] == ["not_comparable"]
    assert {one["predicted"] for one in probes(found)["gemm"]["measurements"]} == {None}
    kept = ask("GET", "/v1/measurements", params={"launch_check_id": check_id, "limit": 1}).json()["items"]
    assert [(one["gpu"], one["predicted_value"]) for one in kept] == [(None, None)]


def test_steps_of_two_checks_become_a_calibration_that_is_nearer_than_formulas(ask: Ask) -> None:
    worker = FakeWorker(ask, "steps", gpu=True)
    worker.claim()
    asked = {**QUESTION, "recipe": {**QUESTION["recipe"], "stack": "transformers"}}
    for scale in (20.0, 20.5):
        check_id = create(ask, probes=["step"], on="matching", question=asked).json()["id"]
        job = worker.claimed()
        records = [worker.record(task, scale) for task in job["payload"]["tasks"]]
        assert worker.finish(job, result={"records": records}) == 204
        estimate = ask("GET", f"{PATH}/{check_id}").json()["estimate"]
        assert estimate["after"]["step_seconds"]["value"] > estimate["before"]["step_seconds"]["value"]
    answer = ask("POST", "/v1/calibrations", json={"device": worker.environment["device"], "probes": ["step"]})
    assert answer.status_code == 201, answer.text
    (part,) = answer.json()["parts"]
    assert (part["probe"], part["left_out"], part["measurements"]) == ("step", "run", 4)
    assert part["held_out_fraction"] < part["before_fraction"]
    drift = ask("GET", f"/v1/calibrations/{answer.json()['id']}/drift")
    assert (drift.status_code, drift.json()["parts"]) == (200, []), "nothing newer but what it says nothing of"


def test_the_own_gpu_without_one_that_has_it_is_refused_with_the_workers_seen(ask: Ask) -> None:
    FakeWorker(ask, "lab-7").claim()
    answer = create(ask, on="matching")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (409, "no_matching_worker")
    assert "lab-7: no GPU, 2 threads" in problem["detail"]
    assert ask("GET", PATH).json()["items"] == []


def test_a_stored_estimate_is_checked_by_its_id(ask: Ask) -> None:
    first = create(ask, probes=["gemm"]).json()
    answer = ask("POST", PATH, json={"estimate_id": first["estimate_id"], "probes": ["gemm"]})
    assert answer.status_code == 202, answer.text
    assert answer.json()["estimate_id"] == first["estimate_id"]


def test_a_check_whose_worker_cannot_measure_ends_with_the_command_that_mends_it(ask: Ask) -> None:
    worker = FakeWorker(ask, measures=False)
    check_id = create(ask, probes=["gemm"]).json()["id"]
    reason = "torch is missing: pip install 'torch>=2.6'"
    error = {"code": "torch_missing", "message": reason, "final": True}
    assert worker.finish(worker.claimed(), "failed", error=error) == 204
    found = ask("GET", f"{PATH}/{check_id}").json()
    assert (found["status"], found["error"], found["verdict"]) == ("failed", reason, None)
    assert probes(found)["gemm"]["status"] == "cancelled"


def test_a_cancelled_check_stays_cancelled(ask: Ask) -> None:
    worker = FakeWorker(ask)
    check_id = create(ask).json()["id"]
    job = worker.claimed()
    assert ask("POST", f"{PATH}/{check_id}/cancel").status_code == 200
    assert worker.tell(job, {"probes": []}) == "cancel"
    assert worker.finish(job, "cancelled") == 204
    found = ask("POST", f"{PATH}/{check_id}/cancel").json()
    assert (found["status"], found["verdict"]) == ("cancelled", None)
    waiting = create(ask).json()["id"]
    assert ask("POST", f"{PATH}/{waiting}/cancel").json()["status"] == "cancelled"
    assert worker.claim() is None


def test_a_check_does_not_wait_behind_a_sweep(ask: Ask) -> None:
    sweep = {
        "models": ["qwen3-0.6b"],
        "clusters": ["dgx-h100"],
        "recipes": [{"sequence_length": 4096, "training_tokens": 1e10}],
    }
    assert ask("POST", "/v1/sweeps", json=sweep).status_code == 202
    found = create(ask).json()
    worker = FakeWorker(ask)
    jobs = [worker.claim("launch-check", "sweep-shard") for _ in range(2)]
    assert [job and job["kind"] for job in jobs] == ["launch-check", "sweep-shard"]
    assert jobs[0] is not None
    assert jobs[0]["id"] == found["id"]


def test_progress_is_shown_probe_by_probe(ask: Ask) -> None:
    worker = FakeWorker(ask)
    check_id = create(ask, probes=["gemm", "bandwidth"]).json()["id"]
    told = {"probes": [{"probe": "gemm", "status": "running", "reason": None, "done_fraction": 0.25}]}
    assert worker.tell(worker.claimed(), told) == "run"
    found = probes(ask("GET", f"{PATH}/{check_id}").json())
    assert (found["gemm"]["status"], found["gemm"]["done_fraction"]) == ("running", 0.25)
    assert found["bandwidth"]["status"] == "queued"


def test_records_that_are_none_are_refused_and_change_nothing(ask: Ask) -> None:
    worker = FakeWorker(ask)
    check_id = create(ask, probes=["gemm"]).json()["id"]
    job = worker.claimed()
    wrong: Any
    for wrong in ({}, {"records": 1}, {"records": [{"probe": "none"}]}, {"records": [{"probe": "gemm", "status": 7}]}):
        assert worker.finish(job, result=wrong) == 422
    assert ask("GET", f"{PATH}/{check_id}").json()["status"] == "running"


def test_checks_are_listed_newest_first_and_as_tables(ask: Ask) -> None:
    worker = FakeWorker(ask)
    ids = [create(ask, probes=["gemm"]).json()["id"] for _ in range(2)]
    job = worker.claimed()
    worker.finish(job, result={"records": [worker.record(task) for task in job["payload"]["tasks"]]})
    rows = ask("GET", PATH).json()["items"]
    assert {row["id"] for row in rows} == {*ids}
    assert {row["verdict"] for row in rows} == {"caution", None}
    assert [row["id"] for row in ask("GET", f"{PATH}?verdict=caution").json()["items"]] == [job["id"]]
    assert ask("GET", f"{PATH}.csv").text.count("\r\n") == 3
    assert ask("GET", f"{PATH}.xlsx").content.startswith(b"PK")
    first = ask("GET", f"{PATH}?limit=1").json()
    assert ask("GET", f"{PATH}?limit=1&cursor={first['next_cursor']}").json()["next_cursor"] is None


@pytest.mark.parametrize("suffix", ["", "/events", "/trace"])
def test_an_unknown_check_is_not_found(ask: Ask, suffix: str) -> None:
    for check_id in ("lch_0", f"lch_{'0' * 32}", "%00"):
        assert ask("GET", f"{PATH}/{check_id}{suffix}").status_code == 404


def test_a_check_without_a_trace_says_why(ask: Ask) -> None:
    check_id = create(ask, probes=["gemm"]).json()["id"]
    answer = ask("GET", f"{PATH}/{check_id}/trace")
    assert (answer.status_code, "not asked for" in answer.json()["detail"]) == (404, True)


def test_what_is_refused_is_not_stored(ask: Ask) -> None:
    assert ask("POST", PATH, json={"question": []}).status_code == 422
    assert ask("GET", PATH).json()["items"] == []


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 5e-324, 1e-300, 1e-12, 1e-7, 3.2e7])
def test_a_value_that_no_device_has_is_never_go_and_moves_nothing(ask: Ask, seconds: float) -> None:
    worker = FakeWorker(ask, f"broken {seconds}", gpu=True)
    worker.claim()
    check_id = create(ask, probes=["gemm"]).json()["id"]
    job = worker.claimed()
    records = [worker.record(task) for task in job["payload"]["tasks"]]
    for one in records[0]["measurements"]:
        one.update(dict.fromkeys(("low", "value", "high"), seconds))
    assert worker.finish(job, result={"records": records}) == 204
    found = ask("GET", f"{PATH}/{check_id}").json()
    assert (found["verdict"], found["estimate"]["after"]) == ("caution", None)
    assert "impossible_value" in {reason["code"] for reason in found["reasons"]}
    assert probes(found)["gemm"]["measurements"] == []
    kept = ask("GET", "/v1/measurements", params={"launch_check_id": check_id}).json()["items"]
    assert kept
    assert all(one["quarantined_at"] for one in kept)
