"""Finished jobs of a real Slurm with accounting: its hook admits them, and sacct reports them."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.house.source import ROOT
from tests.live import serving
from tests.prestarted import ran
from tests.slurm import CLUSTER
from tests.slurm_accounting import accounting

TRAINING = (
    "srun torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 4096 "
    "--num-attention-heads 32 --ffn-hidden-size 14336 --vocab-size 128256 --swiglu --normalization RMSNorm "
    "--disable-bias-linear --bf16 --position-embedding-type rope --untie-embeddings-and-output-weights "
    "--seq-length 4096 --micro-batch-size 1 --global-batch-size 8 --tensor-model-parallel-size 8 "
    "--attention-backend flash {more}"
)
SCRIPT = (
    "#!/bin/bash\n#SBATCH --partition=here --output=/dev/null {options}\nsleep {seconds}\n"
    f"if [ -e /nowhere ]; then\n{TRAINING}\nfi\nexit {{code}}\n"
)
"""Never starts its training: what it trains is what the hook reads."""

EIGHT = "--gpus-per-node=8"
FAST = "SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_interval=1"
"""Looks for jobs to start each second, heterogeneous ones too."""

PATIENCE = "--connect-timeout 0.1 --max-time 0.15"
"""How long the hook waits, which is not what is tested here."""

LONGEST_SECONDS = 90.0


@dataclass(frozen=True)
class Told:
    """What became of the jobs, and where both forms of the accounting are asked for."""

    slurm: Mapping[str, str]
    ids: Mapping[str, str]
    folder: Path

    def reconcile(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[str]:
        """What `traincost reconcile` prints."""
        return ran(["service", "reconcile", *words], self.folder, self.slurm, given)

    def sacct(self, *words: str) -> bytes:
        """What sacct prints."""
        command = ["sacct", "--duplicates", "--starttime=now-1day", *words]
        return subprocess.run(command, env=self.slurm, capture_output=True, check=True, timeout=60).stdout


def script(options: str = EIGHT, *, seconds: int = 0, code: int = 0, more: str = "") -> str:
    return SCRIPT.format(options=options, seconds=seconds, code=code, more=more)


LONG, SHORT = "--train-iters 2000000", "--train-iters 16"

JOBS = {
    "as predicted": script(more=SHORT, seconds=4),
    "far shorter": script(more=LONG),
    "failed": script(more=SHORT, code=3),
    "endless": script(),
    "array": script(f"{EIGHT} --array=0-1", more=SHORT),
    "other": "#!/bin/bash\n#SBATCH --partition=here --output=/dev/null --gpus-per-node=8\nexit 0\n",
}
HELD = "held"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Every job has ended, but one that is held."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("reconcile")
        address = stack.enter_context(serving(folder))
        hook = httpx.get(f"http://{address}/v1/adapters/slurm/job_submit.lua?gpu=a100-sxm4-80gb", timeout=30).text
        assert PATIENCE in hook
        hook = hook.replace(PATIENCE, "--max-time 10")
        slurm = stack.enter_context(accounting("JobSubmitPlugins=lua", FAST, files={"job_submit.lua": hook}))
        ids = {name: _submitted(slurm, folder, text) for name, text in JOBS.items()}
        ids[HELD] = _submitted(slurm, folder, JOBS["as predicted"], "--hold")
        _await_end(slurm, ids[HELD])
        yield Told({**slurm, "PYTHONPATH": str(ROOT), "TRAINCOST_URL": f"http://{address}"}, ids, folder)


def _submitted(slurm: Mapping[str, str], folder: Path, text: str, *options: str) -> str:
    file = folder / "train.sbatch"
    file.write_text(text, encoding="utf-8")
    command = ["sbatch", "--parsable", "--comment=mine|too", *options, str(file)]
    done = subprocess.run(command, env=slurm, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _await_end(slurm: Mapping[str, str], held: str) -> None:
    """Wait until only the job that is held is left, and slurmdbd knows of the others' ends."""
    end = time.monotonic() + LONGEST_SECONDS
    while True:
        queue = subprocess.run(
            ["squeue", "--noheader", "--format=%i %T"], env=slurm, capture_output=True, text=True, check=True
        )
        wanted = ["sacct", "--parsable2", "--noheader", "--allocations", "--format=JobID,End"]
        ends = subprocess.run(wanted, env=slurm, capture_output=True, text=True, check=True).stdout.split()
        if queue.stdout.split() == [held, "PENDING"] and sum("Unknown" not in one for one in ends) == len(JOBS) + 1:
            return
        assert time.monotonic() < end, queue.stdout
        time.sleep(0.5)


def answer_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a command printed."""
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def answer(told: Told) -> dict[str, Any]:
    return answer_of(told.reconcile("--json"))


@pytest.fixture(scope="module")
def by_job(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {job["job_id"]: job for job in answer["jobs"]}


def test_a_job_that_ran_as_long_as_predicted_lies_inside(told: Told, by_job: dict[str, dict[str, Any]]) -> None:
    job = by_job[told.ids["as predicted"]]
    assert (job["cluster"], job["state"], job["gpus"], job["verdict"]) == (CLUSTER, "COMPLETED", 8, "fits")
    assert job["elapsed_seconds"] >= 4
    assert job["used_gpu_hours"] == pytest.approx(8 * job["elapsed_seconds"] / 3600)
    ratio = job["used_gpu_hours"] / job["predicted_gpu_hours"]["value"]
    assert (job["used_over_predicted_fraction"], job["is_inside"]) == (pytest.approx(ratio), True)
    assert (job["is_verdict_right"], job["is_asked_again"], job["note"]) == (True, False, None)


def test_a_job_that_ran_far_shorter_does_not(told: Told, by_job: dict[str, dict[str, Any]]) -> None:
    job = by_job[told.ids["far shorter"]]
    assert job["is_inside"] is False
    assert job["used_over_predicted_fraction"] < 1e-4


def test_what_did_not_complete_or_has_no_length_is_not_compared(told: Told, by_job: dict[str, dict[str, Any]]) -> None:
    failed, endless = by_job[told.ids["failed"]], by_job[told.ids["endless"]]
    assert (failed["state"], failed["is_inside"], failed["is_verdict_right"]) == ("FAILED", None, None)
    assert "did not complete" in failed["note"]
    assert (endless["predicted_gpu_hours"], endless["is_inside"], endless["is_verdict_right"]) == (None, None, True)
    assert "recipe.training_tokens" in endless["note"]


def test_tasks_of_an_array_are_jobs(told: Told, by_job: dict[str, dict[str, Any]]) -> None:
    tasks = [by_job[f"{told.ids['array']}_{task}"] for task in (0, 1)]
    assert [(task["state"], task["gpus"], task["attempts"]) for task in tasks] == [("COMPLETED", 8, 1)] * 2


def test_what_is_left_out_is_counted_with_its_reason(told: Told, answer: dict[str, Any]) -> None:
    assert {one["reason"]: one["jobs"] for one in answer["left_out"]} == {"no_estimate": 1}
    assert told.ids[HELD] not in {job["job_id"] for job in answer["jobs"]}
    assert (answer["faults"], answer["compared"], answer["inside"]) == ([], 4, 1)
    assert answer["steps"] >= len(answer["jobs"])


def test_every_form_of_the_accounting_says_the_same(told: Told, by_job: dict[str, dict[str, Any]]) -> None:
    (told.folder / "sacct.json").write_bytes(told.sacct("--json"))
    columns = "Comment,State,Start,Elapsed,AllocTRES,JobID,Cluster"
    forms = {
        "document": told.reconcile("--json", "sacct.json"),
        "table": told.reconcile("--json", "-", given=told.sacct("-p", f"--format={columns}")),
    }
    for form, done in forms.items():
        assert {job["job_id"]: job for job in answer_of(done)["jobs"]} == by_job, form


def test_sacct_is_asked_for_the_time_and_the_cluster_that_are_wanted(told: Told) -> None:
    later = told.reconcile("--json", "--since", "now+1hour", "--until", "now+2hours")
    assert answer_of(later)["jobs"] == []
    assert answer_of(told.reconcile("--json", "--cluster", "another"))["jobs"] == []
    wrong = told.reconcile("--since", "yesteryear")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "sacct fails: Invalid time specification" in wrong.stderr


def test_the_table_is_what_a_person_reads(told: Told, by_job: dict[str, dict[str, Any]]) -> None:
    said = told.reconcile().stdout
    assert f"{CLUSTER}:{told.ids['as predicted']}" in said
    assert "4 compared: 1 inside the predicted interval" in said
    rows = told.reconcile("--csv").stdout.splitlines()
    assert rows[0].startswith("cluster,job_id,state,estimate_id")
    assert len(rows) == 1 + len(by_job)
