"""Are live tensors what was predicted? Counted by torch's own profiler while real steps run, at two depths."""

import json
import os
import subprocess
from typing import Any

import pytest

from service.calibration.observations import live_step_bytes
from tests.house.source import ROOT
from tests.needing import needs, tool
from tests.worker.probing import need_torch
from tests.worker.step_cases import FEW_TOKENS, MODELS, counted_peaks, model_of, parameters_of, resolved_step

WITHIN = 0.03

LARGE = ("gpt2-124m", "qwen3-0.6b")
"""Models whose own vocabulary takes up to half a minute: `.ci/proof peaks` counts them whole."""


@pytest.mark.parametrize("slug", MODELS)
@pytest.mark.parametrize("depth", [1, 2])
def test_peaks_of_the_first_and_third_step_are_as_predicted(slug: str, depth: int) -> None:
    need_torch()
    vocabulary = {"vocab_size": FEW_TOKENS} if slug in LARGE else {}
    step = resolved_step(model_of(slug, depth, **vocabulary), sequence_length=64)
    predicted = live_step_bytes(step)
    for number, counted in counted_peaks(step).items():
        assert predicted.of_step(number) == pytest.approx(counted, rel=WITHIN), (slug, depth, number)


@pytest.mark.parametrize("slug", MODELS)
def test_peaks_that_activations_decide_are_as_predicted(slug: str) -> None:
    need_torch()
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
    need_torch()
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
