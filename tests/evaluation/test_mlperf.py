"""Submissions to MLPerf Training become rows of the table of steps, and their runs stand beside predictions."""

import json
import tomllib
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from service.answers.accuracy import Accuracy
from service.calibration.scores import spread_fraction
from service.calibration.steps import shipped_held_out
from service.calibration.tables import MeasuredRow, shipped_table
from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.estimator.time.step import RESIDUALS
from service.evaluation.mlperf import Submission, adapter_residuals, evaluated_runs, read_config, submission_of
from service.evaluation.scoring import evaluate_step

SUBMISSIONS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("mlperf.toml").read_text(encoding="utf-8")
)

EXPECTED: dict[str, dict[str, str]] = {
    "llama31_405b": {
        **{"tp": "8", "pp": "8", "vpp": "8", "cp": "2", "dp": "4", "mbs": "1", "gbs": "1152", "n_gpus": "512"},
        **{"gpus_per_node": "8", "gpu_mem_gb": "80", "precision": "fp8", "recompute": "none", "sequence_parallel": "1"},
        **{"training_kind": "pretrain", "seq_len": "8192", "derived_step_time_s": "54.9661"},
    },
    "llama2_70b_lora": {
        **{"tp": "1", "pp": "1", "cp": "1", "dp": "8", "gbs": "8", "n_gpus": "8", "precision": "fp8"},
        **{"recompute": "full", "recompute_detail": "block 21", "training_kind": "lora", "gpu_mem_gb": "192"},
        **{"derived_step_time_s": "3.94458"},
    },
    "gpt3": {
        **{
            "tp": "4",
            "pp": "8",
            "vpp": "4",
            "dp": "16",
            "mbs": "2",
            "gbs": "2304",
            "precision": "fp8",
            "seq_len": "2048",
        },
        **{"derived_step_time_s": "10.9002"},
    },
}
"""Cells of each row. Each time is one that a reader of the excerpt can check: the median of its steps or blocks."""


def submission(name: str, **changed: Any) -> Submission:
    """A submission of the excerpts, with some of its files changed."""
    given = {**SUBMISSIONS[name], **changed}
    logs = given.get("logs", [given["log"]])
    return submission_of(logs, given["config"], given["beside"], given["system"], name="a row", source=given["source"])


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_submission_is_a_row_that_is_asked(name: str) -> None:
    cells = submission(name).cells
    assert {column: cells.get(column) for column in EXPECTED[name]} == EXPECTED[name]
    evaluation = evaluate_step(MeasuredRow(2, cells, "throughput"), shipped_catalogue())
    assert evaluation.reason == ""
    assert evaluation.comparison is not None


def test_runs_that_missed_the_target_are_left_out() -> None:
    log = SUBMISSIONS["llama31_405b"]["log"]
    aborted = log.replace('"status": "success"', '"status": "aborted"')
    both = submission("llama31_405b", logs=[log, aborted])
    assert (both.runs, both.samples) == (1, 276_480)
    with pytest.raises(Refused, match="no run of the logs reached its target"):
        submission("llama31_405b", log=aborted)


def test_lines_of_other_processes_are_passed_over() -> None:
    log = SUBMISSIONS["llama31_405b"]["log"]
    noisy = f'+ echo starting\n{log}0: :::MLLOG {{"key": "run_\n:::MLLOG []\n:::MLLOG {{"key": 1}}\n'
    assert submission("llama31_405b", log=noisy) == submission("llama31_405b")


def test_a_script_that_is_not_there_leaves_its_settings_open() -> None:
    cells = submission("llama31_405b", beside={}).cells
    assert "precision" not in cells
    assert "config_common.sh is not beside the script" in cells["notes"]


def without(text: str, word: str) -> str:
    """A text without the lines that hold a word."""
    return "\n".join(line for line in text.splitlines() if word not in line)


def logs_of(change: Callable[[str], str]) -> dict[str, str]:
    return {"log": change(SUBMISSIONS["llama31_405b"]["log"])}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (logs_of(lambda _: "nothing"), "no line :::MLLOG of a run's start"),
        (logs_of(lambda log: without(log, "tracked_stats")), "no step of the log has a time"),
        (logs_of(lambda log: without(log, "global_batch_size")), "does not state global_batch_size"),
        (logs_of(lambda log: log.replace("llama31_405b", "resnet")), "resnet is no language model"),
        ({"logs": []}, "a row takes 1 to"),
        ({"logs": [SUBMISSIONS[name]["log"] for name in ("gpt3", "llama31_405b")]}, "are of 2 benchmarks"),
        ({"system": "{"}, "is no JSON object"),
        ({"system": json.dumps({"accelerators_per_node": "eight"})}, "how many: accelerators_per_node"),
        ({"config": "export TP=7\nexport DGXNNODES=1\nexport DGXNGPU=8\n"}, "no multiple of the degrees"),
        ({"config": "export TP=x\n"}, "no multiple of the degrees"),
    ],
)
def test_what_gives_no_row_is_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        submission("llama31_405b", **changed)


def test_defaults_and_conditions_of_a_script_are_followed() -> None:
    script = """
        : "${FP8:=True}"
        export TP="${TP:=4}" && export PP=$((2 * 4))
        if [[ "${TP}" -eq 4 ]]; then export CP=2; fi
        export MBS=$(nvidia-smi | wc -l)
    """
    variables, missing = read_config(script, {})
    assert variables == {"FP8": "True", "TP": "4", "PP": "8", "CP": "2"}
    assert missing == ()


def test_shipped_runs_name_steps_that_ship() -> None:
    steps = {row["id"]: row for row in shipped_table("throughput")}
    for run in shipped_table("mlperf_runs"):
        if run["row"]:
            row = steps[run["row"]]
            assert run["source"].partition(" ")[2] in row["source"]
            for column in ("n_gpus", "gbs", "tp", "pp", "cp", "mbs", "precision"):
                assert run[column] == row[column], (run["system"], column)


def test_every_run_is_predicted_or_says_why(found: Accuracy) -> None:
    board = found.held_out.mlperf
    assert board is not None
    names = {(run["system"], run["benchmark"]): run["row"] for run in shipped_table("mlperf_runs") if run["row"]}
    for run in board.runs:
        assert (run.gpu_hours is None) is bool(run.reason)
        if run.gpu_hours is not None:
            assert run.gpu_hours.low < run.gpu_hours.value < run.gpu_hours.high
            assert run.error_fraction == pytest.approx(run.gpu_hours.value / run.measured_gpu_hours - 1)
    held_out = {(run.system, run.benchmark) for run in board.runs if run.held_out}
    assert held_out == {name for name, row in names.items() if row in shipped_held_out().predicted_seconds}
    every = board.scores[-1]
    assert (every.benchmark, every.runs) == ("all", len(board.runs))
    assert every.scored == sum(score.scored for score in board.scores[:-1])
    assert every.coverage80_fraction == sum(bool(run.is_inside) for run in board.runs) / every.scored


def test_the_spread_of_adapters_is_that_of_their_submitters() -> None:
    residuals = adapter_residuals(evaluated_runs(shipped_catalogue()))
    spread = spread_fraction(residuals, by_root=True)
    assert len(residuals) >= 10
    assert spread is not None
    assert RESIDUALS["adapters"] == ceil(spread * 1e3) / 1e3


def test_runs_of_adapters_lie_in_intervals_of_other_submitters(found: Accuracy) -> None:
    assert found.held_out.mlperf is not None
    runs = [run for run in found.held_out.mlperf.runs if run.benchmark == "llama2_70b_lora" and run.gpu_hours]
    assert 0.76 <= sum(bool(run.is_inside) for run in runs) / len(runs) <= 0.84
