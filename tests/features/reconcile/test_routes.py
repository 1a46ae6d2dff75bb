"""POST /v1/reconciliations: each estimate that the service keeps is found by its id, whoever keeps it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.errors import UnknownRevision
from service.features.reconcile import reconcile
from service.store.scenarios import remove_checked_questions
from tests.api.asking import QUESTION, Ask, example_of

PATH = "/v1/reconciliations"
TEXT = {"content-type": "text/plain"}
HEADER = "JobID|Cluster|State|Elapsed|AllocTRES|Start|Comment\n"
ROW = "7|hpc|COMPLETED|3-00:00:00|gres/gpu=8|2026-11-20T08:00:00|"
DOCUMENT = example_of("createReconciliation")


def reconciled(ask: Ask, estimate_id: str) -> httpx.Response:
    return ask("POST", PATH, content=f"{HEADER}{ROW}{estimate_id}\n", headers=TEXT)


def only(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    (job,) = answer.json()["jobs"]
    found: dict[str, Any] = job
    return found


def question(days: int) -> dict[str, Any]:
    """A question that no other test asks."""
    return {**QUESTION, "recipe": {**QUESTION["recipe"], "training_tokens": 1e9 + days}}


def test_a_job_is_compared_with_what_its_check_said(kept: Ask) -> None:
    check = kept("POST", "/v1/check", json=question(1)).json()
    job = only(reconciled(kept, check["id"]))
    assert job["predicted_gpu_hours"] == check["gpu_hours"]
    assert (job["used_gpu_hours"], job["verdict"], job["is_asked_again"]) == (576.0, "fits", False)
    assert job["used_over_predicted_fraction"] == pytest.approx(576 / check["gpu_hours"]["value"])


def test_a_job_is_compared_with_what_its_scenario_holds(own: Ask) -> None:
    saved = own("POST", "/v1/scenarios", json={"name": "reconciled", "question": question(2)}).json()
    estimate = own("GET", saved["links"]["estimate"]).json()
    job = only(reconciled(own, estimate["id"]))
    assert job["predicted_gpu_hours"] == estimate["totals"]["gpu_hours"]
    assert (job["verdict"], job["is_asked_again"], job["gpus"]) == (estimate["verdict"], False, 8)


def test_a_compared_job_is_kept_once_and_counts_in_what_was_measured(own: Ask) -> None:
    check = own("POST", "/v1/check", json=question(6)).json()
    (job, _) = [only(reconciled(own, check["id"])) for _ in range(2)]
    (row,) = [one for one in own("GET", "/v1/measurements?source=slurm").json()["items"] if check["id"] in one["shape"]]
    assert (row["probe"], row["quantity"], row["run"], row["kind"]) == ("run", "gpu_hours", "slurm:hpc", "cuda")
    assert (row["value"], row["predicted_value"]) == (576.0, check["gpu_hours"]["value"])
    assert row["ratio"] == pytest.approx(job["used_over_predicted_fraction"])
    (group,) = [one for one in own("GET", "/v1/accuracy").json()["measured"]["own"] if one["probe"] == "run"]
    assert group["scored"] >= 1


def test_what_older_formulas_or_facts_said_is_asked_again(kept: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    check = kept("POST", "/v1/check", json=question(3)).json()
    reconciled(kept, check["id"])
    monkeypatch.setattr(reconcile, "FORMULAS_VERSION", "1999.1.1")
    assert only(reconciled(kept, check["id"]))["is_asked_again"] is True


def test_facts_that_are_not_kept_are_those_of_today(
    kept_app: FastAPI, kept: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: str, **__: Any) -> None:
        raise UnknownRevision("gone")

    check = kept("POST", "/v1/check", json=question(4)).json()
    reconciled(kept, check["id"])
    monkeypatch.setattr(kept_app.state.history, "at", unknown)
    assert only(reconciled(kept, check["id"]))["is_asked_again"] is True


def test_an_estimate_that_nobody_keeps_is_counted(own_app: FastAPI, own: Ask) -> None:
    check = own("POST", "/v1/check", json=question(5)).json()
    only(reconciled(own, check["id"]))
    remove_checked_questions(own_app.state.engine, datetime.now(UTC) + timedelta(days=1))
    answer = reconciled(own, check["id"]).json()
    assert answer["jobs"] == []
    assert {one["reason"]: one["jobs"] for one in answer["left_out"]} == {"unknown_estimate": 1}


def test_both_forms_are_taken(kept: Ask) -> None:
    document = kept("POST", PATH, json=DOCUMENT)
    table = kept("POST", PATH, content=example_of("createReconciliationOfText"), headers=TEXT)
    assert document.json() == table.json()
    assert document.status_code == table.status_code == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"content": "", "headers": TEXT}, 422),
        ({"content": HEADER.replace("State|", "") + ROW, "headers": TEXT}, 422),
        ({"content": HEADER + ROW, "headers": {"content-type": "text/csv"}}, 415),
        ({"json": {"jobs": []}}, 422),
        ({"json": {**DOCUMENT, "meta": {"plugin": {"data_parser": "data_parser/v0.0.99"}}}}, 422),
        ({"content": "{", "headers": {"content-type": "application/json"}}, 400),
        ({"content": b"\xff", "headers": TEXT}, 422),
    ],
)
def test_what_is_no_output_of_sacct_is_refused(request_: dict[str, Any], status: int, kept: Ask) -> None:
    answer = kept("POST", PATH, **request_)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
