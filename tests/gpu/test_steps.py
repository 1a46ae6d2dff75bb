"""Steps on a real GPU take the predicted time, and their profile describes the GPU."""

from pathlib import Path
from typing import Any

import pytest

from service.calibration.observations import live_step_bytes
from service.calibration.records import ProbeRecord, ProbeTask
from tests.gpu.needing import need_gpus
from tests.worker.probing import run_probe
from tests.worker.step_cases import MODELS, model_of, parameters_of, resolved_step

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

WITHIN = 0.03
MOST_WORKSPACES_BYTES = 80 * 2**20


def run(probe: Any, parameters: dict[str, Any], folder: Path) -> ProbeRecord:
    """The record of a probe that succeeded."""
    record = run_probe(ProbeTask(probe=probe, parameters=parameters, timeout_seconds=180.0), folder)
    assert record.status == "succeeded", record.reason
    return record


@pytest.mark.parametrize("slug", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-mixed"])
def test_allocated_peaks_are_as_predicted(slug: str, precision: str, tmp_path: Path) -> None:
    need_gpus()
    steps = {
        depth: resolved_step(model_of(slug, depth), sequence_length=1024, micro_batch=4, precision=precision)
        for depth in (1, 2)
    }
    record = run("step", parameters_of(steps[1], depths=[1, 2], steps=3, timed_steps=5), tmp_path)
    found = {(one.operation, *one.shape.values()): one.value for one in record.measurements}
    for depth, step in steps.items():
        for number in (1, 3):
            allocated = found["allocated_peak", depth, number]
            room = WITHIN * allocated + MOST_WORKSPACES_BYTES
            assert live_step_bytes(step).of_step(number) == pytest.approx(allocated, abs=room)
            assert allocated <= found["reserved_peak", depth, number] <= found["device_peak", depth, number]
    assert 0 < found["step", 1] < found["step", 2]


def test_a_profile_tells_of_kernels_copies_and_launches(tmp_path: Path) -> None:
    need_gpus()
    step = resolved_step(
        model_of("smollm2-135m", 4), sequence_length=1024, micro_batch=2, precision="bf16-mixed", attention="flash"
    )
    summary = run("profile", parameters_of(step, depth=4), tmp_path).summary
    assert summary is not None
    assert summary["on"] == "device"
    assert {"gemm", "attention", "elementwise", "optimizer"} <= set(summary["kinds_seconds"])
    assert summary["copies"]["host_to_device"]["bytes"] >= 3 * 8 * 2 * 1024
    for one in summary["steps"]:
        assert one["launches"] > 100
        assert 0 < one["kernel_seconds"] <= one["seconds"]
        assert one["device_idle_seconds"] < one["seconds"]
