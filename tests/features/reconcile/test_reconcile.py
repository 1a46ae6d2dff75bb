"""A job is compared with its prediction, or the answer says why it is not."""

import csv
import io
from dataclasses import replace

import pytest

from service.answers.diagnoses import ReconciledJob, Reconciliation
from service.cli.data_reports import reconciliation_csv, reconciliation_report
from service.errors import Refused
from service.estimator.answer import Interval
from service.features.reconcile.reconcile import (
    JOBS_AT_ONCE,
    MOST_ESTIMATES,
    Prediction,
    compare_jobs,
    read_sacct,
    reconcile_output,
    reconciliation_of,
)

ESTIMATE = "est_0123456789abcdef0123456789abcdef"
OTHER = "est_fedcba9876543210fedcba9876543210"
HEADER = "JobID|Cluster|State|ElapsedRaw|AllocTRES|Start|Restarts|Comment\n"

PREDICTION = Prediction(
    gpu_hours=Interval(6.0, 8.0, 12.0, "analytic"), verdict="fits", gpus=8, gpu="h100-sxm5-80gb", host_bytes=2.0**30,
    formulas="1", calibration=None, is_asked_again=False,
)  # fmt: skip


def row(job: str, state: str = "COMPLETED", seconds: int = 3600, **other: str) -> str:
    said = {"tres": "gres/gpu=8", "start": "2026-11-23T07:00:00", "restarts": "0", "id": ESTIMATE} | other
    return f"{job}|hpc|{state}|{seconds}|{said['tres']}|{said['start']}|{said['restarts']}|{said['id']}\n"


def reconciled(text: str, prediction: Prediction | None = PREDICTION) -> Reconciliation:
    found = read_sacct(text)
    jobs, others = compare_jobs(found, lambda _: prediction)
    return reconciliation_of([compared for _, _, compared in jobs], others, found.faults, found.steps)


def compared(*rows: str, prediction: Prediction | None = PREDICTION) -> Reconciliation:
    return reconciled(HEADER + "".join(rows), prediction)


def only(*rows: str, prediction: Prediction = PREDICTION) -> ReconciledJob:
    (job,) = compared(*rows, prediction=prediction).jobs
    return job


@pytest.mark.parametrize(
    ("seconds", "hours", "ratio", "inside"), [(3600, 8, 1, True), (7200, 16, 2, False), (900, 2, 0.25, False)]
)
def test_a_completed_run_is_compared(seconds: int, hours: float, ratio: float, inside: bool) -> None:
    job = only(row("7", seconds=seconds))
    assert (job.used_gpu_hours, job.used_over_predicted_fraction, job.is_inside) == (hours, ratio, inside)
    assert (job.verdict, job.is_verdict_right, job.note) == ("fits", True, None)


NOT_COMPARED = {
    "failed": (row("7", "FAILED"), PREDICTION, "did not complete"),
    "timeout": (row("7", "TIMEOUT"), PREDICTION, "did not complete"),
    "no length": (row("7"), replace(PREDICTION, gpu_hours=None), "recipe.training_tokens"),
    "slices": (row("7", tres="gres/gpu:a100_3g.20gb=8,gres/gpu=8"), PREDICTION, "slices"),
    "other GPUs": (row("7", tres="gres/gpu=4"), PREDICTION, "4 GPUs, and the estimate is one of 8"),
    "attempts": (row("7", restarts="1"), PREDICTION, "--duplicates"),
}


@pytest.mark.parametrize("name", NOT_COMPARED)
def test_what_is_no_whole_run_of_the_question_is_not(name: str) -> None:
    text, prediction, why = NOT_COMPARED[name]
    job = only(text, prediction=prediction)
    assert (job.used_over_predicted_fraction, job.is_inside) == (None, None)
    assert why in (job.note or "")


def test_a_run_that_may_have_gone_on_from_another_is_not() -> None:
    before = row("7", "TIMEOUT", start="2026-11-20T07:00:00")
    found = compared(before, row("8"))
    assert [job.is_inside for job in found.jobs] == [None, None]
    assert "checkpoint" in (found.jobs[1].note or "")
    after = compared(row("8"), row("9", "TIMEOUT", start="2026-11-24T07:00:00"))
    assert [job.is_inside for job in after.jobs] == [True, None]


def test_attempts_together_are_one_run() -> None:
    job = only(row("7", "NODE_FAIL", 1800), row("7", restarts="1"))
    assert (job.attempts, job.used_gpu_hours, job.is_inside) == (2, 12.0, True)


def test_a_job_that_completes_contradicts_that_it_runs_out_of_memory() -> None:
    found = compared(row("7"), prediction=replace(PREDICTION, verdict="out_of_memory"))
    assert (found.verdicts_right, found.verdicts_wrong, found.jobs[0].is_verdict_right) == (0, 1, False)
    assert "1 completed that were predicted to run out of memory" in str(reconciliation_report(found))


def test_memory_of_the_node_is_told_from_that_of_gpus() -> None:
    found = compared(row("7", "OUT_OF_MEMORY"))
    (job,) = found.jobs
    assert (found.out_of_memory, job.is_verdict_right) == (1, None)
    assert "a rank was to take 1 GiB" in (job.note or "")


def test_figures_are_those_of_what_is_compared() -> None:
    found = compared(row("7"), row("8", seconds=7200), row("9", seconds=5400), row("10", "FAILED"))
    assert (found.compared, found.inside, found.median_used_over_predicted_fraction) == (3, 2, 1.5)
    assert compared(row("7", "FAILED")).median_used_over_predicted_fraction is None


def test_an_estimate_that_is_not_kept_is_counted() -> None:
    found = compared(row("7"), row("8"), row("9", id=""), prediction=None)
    assert found.jobs == ()
    assert {one.reason: one.jobs for one in found.left_out} == {"unknown_estimate": 2, "no_estimate": 1}


def test_too_many_at_once_are_refused_and_sent_in_parts() -> None:
    text = HEADER + "".join(row(str(number), id=f"est_{number:032x}") for number in range(MOST_ESTIMATES + 1))
    with pytest.raises(Refused, match="more than the"):
        reconciled(text)
    asked: list[str] = []

    def ask(part: str) -> Reconciliation:
        asked.append(part)
        return reconciled(part)

    found = reconcile_output(ask, text + "7.batch|hpc|COMPLETED|1||||\nwrong|hpc|COMPLETED|1||||\n")
    assert (len(found.jobs), found.compared, found.steps, len(found.faults)) == (
        MOST_ESTIMATES + 1,
        MOST_ESTIMATES + 1,
        1,
        1,
    )
    assert [part.count("\n") - 1 <= JOBS_AT_ONCE for part in asked] == [True] * 3
    homes = [{line.rpartition("|")[2] for line in part.splitlines()[1:]} for part in asked]
    assert not homes[0] & homes[1], "jobs of one estimate are sent together"


def test_an_array_of_one_estimate_is_reconciled_as_a_whole() -> None:
    rows = [row(str(number), id=ESTIMATE, start="2026-11-24T07:00:00") for number in range(MOST_ESTIMATES + 200)]
    parts = list[str]()

    def ask(part: str) -> Reconciliation:
        parts.append(part)
        return reconciled(part)

    assert reconcile_output(ask, HEADER + "".join(rows)).compared == len(rows)
    found = reconcile_output(ask, HEADER + "".join([*rows, row("99999", "TIMEOUT", start="2026-11-23T07:00:00")]))
    assert (len(parts), found.compared, len(found.jobs)) == (2, 0, len(rows) + 1)


def test_nothing_is_sent_where_nothing_was_estimated() -> None:
    def ask(_: str) -> Reconciliation:
        raise AssertionError("asked")

    found = reconcile_output(ask, HEADER + row("7", id="of somebody"))
    assert {one.reason: one.jobs for one in found.left_out} == {"no_estimate": 1}


def test_only_what_is_needed_is_sent() -> None:
    header = "JobID|User|Account|JobName|State|ElapsedRaw|AllocTRES|Start|WorkDir|Comment\n"
    secret = (
        f"7|ada|secret|secret-run|COMPLETED|3600|gres/gpu=8,mem=9G|2026-11-23T07:00:00|/data/ada|secret {ESTIMATE}\n"
    )
    asked: list[str] = []

    def ask(part: str) -> Reconciliation:
        asked.append(part)
        return reconciled(part)

    reconcile_output(ask, header + secret)
    assert "secret" not in asked[0]
    assert "ada" not in asked[0]
    assert ESTIMATE in asked[0]


def test_tables_hold_every_job() -> None:
    found = compared(row("7"), row("8", "FAILED"), row("9", id=""))
    rows = list(csv.DictReader(io.StringIO(str(reconciliation_csv(found)))))
    assert [(one["job_id"], one["predicted_gpu_hours.low"], one["is_inside"]) for one in rows] == [
        ("7", "6", "true"),
        ("8", "6", ""),
    ]
    said = str(reconciliation_report(found)).splitlines()
    assert said[1].split() == ["hpc:7", "COMPLETED", "8", "8", "8", "(6", "to", "12)", "1", "yes"]
    assert any("1 jobs: their comments hold no estimate's id" in line for line in said)
