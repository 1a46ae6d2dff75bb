"""Documents of `sacct --json` of versions 22.05 to 25.11 are read."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from service.errors import Refused
from service.features.reconcile.reconcile import read_sacct, sent_table
from service.features.reconcile.slurm import finished_jobs, read_document

RECORDED: dict[str, dict[str, Any]] = {
    one["slurm"]: one["document"] for one in json.loads((Path(__file__).parent / "sacct_documents.json").read_text())
}
ESTIMATE = "est_0123456789abcdef0123456789abcdef"
GPUS = [
    {"type": "gres", "name": "gpu", "id": 1001, "count": 8},
    {"type": "gres", "name": "gpu:h100", "id": 1002, "count": 8},
]
OLDEST = "22.05.8"


def estimated(document: dict[str, Any]) -> dict[str, Any]:
    """The document, had a hook written the estimate, on a cluster that counts GPUs."""
    changed = copy.deepcopy(document)
    for job in changed["jobs"]:
        job["comment"]["job"] = f"mine {ESTIMATE}"
        job["tres"]["allocated"] += GPUS if job["tres"]["allocated"] else []
    return changed


@pytest.mark.parametrize("version", [version for version in RECORDED if version != OLDEST])
def test_newer_versions_are_read(version: str) -> None:
    document = RECORDED[version]
    found = read_document(document)
    assert (len(found.records), found.faults) == (6, ())
    by_state = {record.state: record for record in found.records}
    assert by_state.keys() == {"COMPLETED", "FAILED", "PENDING", "RUNNING", "TIMEOUT"}
    seconds = {job["job_id"]: job["time"]["elapsed"] for job in document["jobs"]}
    assert {int(record.job_id): record.elapsed_seconds for record in found.records} == seconds
    assert (by_state["PENDING"].started, by_state["TIMEOUT"].cluster) == ("", "hpc")
    jobs, others = finished_jobs(found.records)
    assert jobs == ()
    assert {one.reason: one.jobs for one in others} == {"no_estimate": 4, "not_ended": 2}


@pytest.mark.parametrize("version", [version for version in RECORDED if version != OLDEST])
def test_gpus_of_estimated_jobs_are_counted_once(version: str) -> None:
    jobs, others = finished_jobs(read_document(estimated(RECORDED[version])).records)
    assert {one.reason: one.jobs for one in others} == {"not_ended": 2}
    assert [(job.gpus, job.estimate_id, job.is_whole) for job in jobs] == [(8, ESTIMATE, True)] * 4
    assert [job.gpu_hours for job in jobs] == [pytest.approx(8 * job.elapsed_seconds / 3600) for job in jobs]


def test_a_cluster_that_counts_no_gpus_is_told_so() -> None:
    document = estimated(RECORDED["25.11.0"])
    for job in document["jobs"]:
        job["tres"]["allocated"] = [row for row in job["tres"]["allocated"] if row["type"] != "gres"]
    _, others = finished_jobs(read_document(document).records)
    assert {one.reason: one.jobs for one in others} == {"no_gpus": 4, "not_ended": 2}
    assert "AccountingStorageTRES=gres/gpu" in {one.reason: one.fix for one in others}["no_gpus"]


def test_requeued_components_and_tasks_of_the_oldest_version_are_told_apart() -> None:
    found = read_document(RECORDED[OLDEST])
    assert [record.job_id for record in found.records] == ["1", "2", "3", "4", "6+0", "6+1", "3_2", "3_1"]
    jobs, others = finished_jobs(found.records)
    assert [(job.job_id, job.state, job.gpus) for job in jobs] == [
        ("1", "COMPLETED", 1), ("3", "CANCELLED", 1), ("4", "CANCELLED", 1),
        ("3_2", "COMPLETED", 2), ("3_1", "COMPLETED", 2),
    ]  # fmt: skip
    assert {one.reason: one.jobs for one in others} == {"not_ended": 2}, "one requeued, one of two components"
    assert found.steps > 0


def test_attempts_that_are_not_listed_are_missed() -> None:
    document = estimated(RECORDED["25.11.0"])
    document["jobs"][0]["restart_cnt"] = 2
    jobs, _ = finished_jobs(read_document(document).records)
    assert [job.is_whole for job in jobs] == [False, True, True, True]


@pytest.mark.parametrize("version", RECORDED)
def test_what_is_handed_on_says_the_same(version: str) -> None:
    jobs, _ = finished_jobs(read_document(estimated(RECORDED[version])).records)
    text = sent_table(jobs)
    again, others = finished_jobs(read_sacct(text).records)
    assert others == ()
    assert [(job.job_id, job.state, job.gpus, job.gpu_hours, job.attempts, job.is_whole) for job in again] == [
        (job.job_id, job.state, job.gpus, job.gpu_hours, job.attempts, job.is_whole) for job in jobs
    ]


@pytest.mark.parametrize(
    ("change", "code", "fix"),
    [
        ({"meta": {"plugin": {"data_parser": "data_parser/v0.0.45"}}}, "unknown_version", "--json=v0.0.41"),
        ({"meta": {"plugin": {"data_parser": "data_parser/v0.0.37"}}}, "unknown_version", "--parsable2"),
        ({"meta": {}}, "no_version", "sacct --json"),
        ({"jobs": None}, "no_jobs", "sacct --json"),
        ({"jobs": [{"job_id": 1}]}, "unreadable", "sacct --json"),
        ({"jobs": ["12"]}, "unreadable", "sacct --json"),
    ],
)
def test_what_is_no_such_document_is_named(change: dict[str, Any], code: str, fix: str) -> None:
    with pytest.raises(Refused) as refused:
        read_document(RECORDED["25.11.0"] | change)
    (problem,) = refused.value.problems
    assert problem.code == code
    assert fix in problem.fix


def test_one_record_that_cannot_be_read_does_not_hide_the_others() -> None:
    document = copy.deepcopy(RECORDED["25.11.0"])
    document["jobs"][2]["state"]["current"] = ["ON_FIRE"]
    document["jobs"][3]["time"]["elapsed"] = "long"
    found = read_document(document)
    assert len(found.records) == 4
    assert [(fault.place, fault.field) for fault in found.faults] == [
        ("job 3 of the list", "state.current"), ("job 4 of the list", "time.elapsed"),
    ]  # fmt: skip
    assert "ON_FIRE" not in str(found.faults)


@pytest.mark.parametrize("text", ['{"jobs": [', "{" * 100_000, '{"jobs": []} slurmdbd: error'])
def test_a_document_that_is_cut_off_is_named(text: str) -> None:
    with pytest.raises(Refused) as refused:
        read_sacct(text)
    assert refused.value.problems[0].code == "not_json"
