"""The step probe counts memory and names it by category, and refuses what it does not run."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.calibration.observations import live_step_bytes
from service.calibration.records import ProbeTask
from service.errors import Refused
from tests.house.source import ROOT
from tests.needing import needs, tool
from tests.worker.probing import found_by, need_torch, run_probe, told
from tests.worker.step_cases import FEW_TOKENS, MODELS, counted_peaks, model_of, parameters_of, resolved_step


@pytest.fixture(autouse=True)
def _torch() -> None:
    need_torch()


def asked(depths: tuple[int, ...] = (1, 2), **recipe: Any) -> dict[str, Any]:
    """A task for a small model."""
    step = resolved_step(model_of("smollm2-135m", 1, vocab_size=FEW_TOKENS), **{"sequence_length": 16, **recipe})
    return parameters_of(step, depths=list(depths), steps=2, timed_steps=2)


def test_a_worker_measures_steps_at_each_depth(tmp_path: Path) -> None:
    record = run_probe(ProbeTask(probe="step", parameters=asked(), timeout_seconds=100.0), tmp_path)
    assert record.status == "succeeded", record.reason
    told = [(one.operation, one.shape, one.quantity, one.repeats) for one in record.measurements]
    assert told == [
        entry
        for depth in (1, 2)
        for entry in (
            ("live_bytes_peak", {"depth": depth, "step": 1}, "bytes", 1),
            ("live_bytes_peak", {"depth": depth, "step": 2}, "bytes", 1),
            ("step", {"depth": depth}, "seconds", 2),
        )
    ]
    assert all(one.low <= one.value <= one.high for one in record.measurements)


def test_categories_add_up_and_are_those_of_the_model(tmp_path: Path) -> None:
    found = found_by("step", asked((2,)), tmp_path)
    assert found.summary is not None
    rows = found.summary["timeline"]
    parameters = 4 * (2 * 3_540_096 + FEW_TOKENS * 576 + 576)
    names = ("parameters", "gradients", "optimizer_states", "input", "activations")
    for row in rows:
        assert sum(row[f"{name}_bytes"] for name in names) == row["live_bytes"]
        assert row["temporaries_bytes"] >= 0
        assert row["parameters_bytes"] == parameters
        assert row["input_bytes"] == 8 * 16
    last = {(row["step"], row["moment"]): row for row in rows if row["layer"] is None}
    assert last[1, "forward"]["optimizer_states_bytes"] == 0
    assert last[1, "optimizer"]["gradients_bytes"] == parameters
    assert last[1, "optimizer"]["optimizer_states_bytes"] == pytest.approx(2 * parameters, rel=1e-4)
    assert last[1, "optimizer"]["temporaries_bytes"] >= parameters
    assert last[2, "end"]["gradients_bytes"] == 0
    by_layer = [row["activations_bytes"] for row in rows if row["moment"] == "forward" and row["step"] == 1]
    assert by_layer == sorted(by_layer)
    peak = max(row["peak_bytes"] for row in rows if row["step"] == 2 and row["moment"] != "start")
    assert peak == next(one.value for one in found.measurements if one.shape == {"depth": 2, "step": 2})


@pytest.mark.parametrize(
    "recipe",
    [
        {"precision": "bf16"},
        {"precision": "bf16-mixed", "recompute": "full"},
        {"attention": "flash", "dropout_fraction": 0.1},
        {"optimizer": "sgd-momentum"},
    ],
    ids=["bf16", "mixed", "flash", "sgd"],
)
def test_every_recipe_that_it_runs_trains(recipe: dict[str, Any], tmp_path: Path) -> None:
    found = found_by("step", {**asked((1,), **recipe), "timed_steps": 0}, tmp_path)
    assert [one.operation for one in found.measurements] == ["live_bytes_peak", "live_bytes_peak"]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("precision", {"precision": "mxfp8"}),
        ("optimizer", {"optimizer": "muon"}),
        ("method", {"method": "lora"}),
        ("attention", {"attention": "flash-3"}),
        ("recompute", {"recompute": "selective"}),
        ("recompute", {"recompute": {"granularity": "full", "method": "uniform", "layers": 2}}),
        ("stack", {"stack": "torchtitan"}),
        ("ema", {"ema": True}),
    ],
)
def test_what_it_does_not_run_is_refused_by_its_field(field: str, changes: dict[str, Any], tmp_path: Path) -> None:
    given = asked()
    given["recipe"] |= changes
    with pytest.raises(Refused, match=f"recipe.{field}"):
        found_by("step", given, tmp_path)


def test_a_model_that_is_not_built_is_skipped_by_a_worker(tmp_path: Path) -> None:
    given = asked()
    given["model"] |= {"attention_sinks": True}
    record = run_probe(ProbeTask(probe="step", parameters=given, timeout_seconds=100.0), tmp_path)
    assert record.status == "skipped"
    assert "attention_sinks" in (record.reason or "")


def test_out_of_time_it_tells_what_it_has(tmp_path: Path) -> None:
    from service.worker.probes import step

    found = step.run({**asked(), "seconds": 0.0}, told(tmp_path))
    assert {one.shape["depth"] for one in found.measurements} == {1}
    assert "out of time before 2 layers" in (found.reason or "")


WITHIN = 0.03

LARGE = ("gpt2-124m", "qwen3-0.6b")
"""Models whose own vocabulary takes up to half a minute: `.ci/proof peaks` counts them whole."""


@pytest.mark.parametrize("slug", MODELS)
@pytest.mark.parametrize("depth", [1, 2])
def test_peaks_of_the_first_and_third_step_are_as_predicted(slug: str, depth: int) -> None:
    vocabulary = {"vocab_size": FEW_TOKENS} if slug in LARGE else {}
    step = resolved_step(model_of(slug, depth, **vocabulary), sequence_length=64)
    predicted = live_step_bytes(step)
    for number, counted in counted_peaks(step).items():
        assert predicted.of_step(number) == pytest.approx(counted, rel=WITHIN), (slug, depth, number)


@pytest.mark.parametrize("slug", MODELS)
def test_peaks_that_activations_decide_are_as_predicted(slug: str) -> None:
    step = resolved_step(model_of(slug, 2, vocab_size=FEW_TOKENS), sequence_length=256, micro_batch=2)
    predicted = live_step_bytes(step)
    for number, counted in counted_peaks(step, steps=2).items():
        assert predicted.of_step(number) == pytest.approx(counted, rel=WITHIN), (slug, number)


OTHERS: dict[str, dict[str, Any]] = {
    "recompute": {"recompute": "full", "sequence_length": 256, "micro_batch": 2},
    "flash": {"attention": "flash", "sequence_length": 256, "micro_batch": 2},
    "sgd": {"optimizer": "sgd-momentum", "sequence_length": 128},
    "mixed": {"precision": "bf16-mixed", "sequence_length": 128, "vocab_size": 8192},
    "fused": {"fused_update": True, "sequence_length": 128, "vocab_size": 8192},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_peaks_of_other_recipes_are_as_predicted(changes: dict[str, Any]) -> None:
    asked = {"vocab_size": FEW_TOKENS, **changes}
    step = resolved_step(model_of("smollm2-135m", 2, vocab_size=asked.pop("vocab_size")), **asked)
    predicted = live_step_bytes(step)
    for number, counted in counted_peaks(step, steps=2).items():
        assert predicted.of_step(number) == pytest.approx(counted, rel=WITHIN), number


@needs("exporters")
def test_the_model_holds_what_the_classes_of_transformers_hold() -> None:
    python = tool("torch", "bin", "python")
    cases = [
        parameters_of(
            resolved_step(
                model_of(slug, 1, vocab_size=FEW_TOKENS), sequence_length=128, micro_batch=2, attention=kernel
            )
        )
        for slug, kernel in zip(MODELS, ("flash", "eager", "flash"), strict=True)
    ]
    command = [str(python), "-W", "ignore", "-m", "tests.worker.transformers_peaks"]
    done = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, check=False, cwd=ROOT, timeout=200,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == len(cases)
    for case, (ours, theirs) in zip(cases, found, strict=True):
        assert ours == pytest.approx(theirs, rel=0.01), case
