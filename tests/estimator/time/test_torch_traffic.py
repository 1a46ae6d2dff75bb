"""Calls and bytes of replicas are those that torch counts in processes of its own, under gloo."""

import json
import os
import subprocess

import pytest

from service.catalogue.huggingface.importing import import_config
from service.estimator import Layout, Recipe, estimate
from service.estimator.question import Software
from tests.ask import question
from tests.estimator.time.traffic_cases import CASES, CONFIG, RANKS, TOKENS, Case
from tests.house.source import ROOT
from tests.needing import needs, tool

Counts = dict[str, list[float]]


def predicted(case: Case) -> Counts:
    """Calls of each collective in one step, and bytes of their whole tensors."""
    bucket = None if case.bucket_bytes is None else case.bucket_bytes // 4
    recipe = Recipe(
        sequence_length=TOKENS,
        global_batch=RANKS,
        precision="fp32",
        stack=Software(name=case.stack, reduce_bucket_numbers=bucket),
    )
    layout = Layout(data=RANKS, zero_stage=3 if bucket is None else 0, reshard_after_forward=case.reshard)
    model = import_config({"model_type": "llama", **CONFIG}).model
    rows = estimate(question(model, recipe, layout, gpus=RANKS)).communication
    return {row.collective: [row.calls, row.calls * row.tensor_bytes] for row in rows}


@pytest.fixture(scope="module")
def counts() -> dict[str, Counts]:
    """What torch counts of every case, in the environment that has transformers."""
    command = [str(tool("torch", "bin", "python")), "-W", "ignore", "-m", "tests.estimator.time.torch_traffic"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=400,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Counts] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs("exporters")
@pytest.mark.parametrize("name", CASES)
def test_calls_and_bytes_are_those_that_torch_counts(name: str, counts: dict[str, Counts]) -> None:
    found, own = counts[name], predicted(CASES[name])
    assert {kind: total for kind, (_, total) in own.items()} == {
        kind: pytest.approx(total) for kind, (_, total) in found.items()
    }
    for kind, (calls, _) in found.items():
        if CASES[name].bucket_bytes == 1 << 16:  # sums of shares count a call more where a large matrix ends a bucket
            assert calls <= own[kind][0] <= 1.25 * calls
        else:
            assert own[kind][0] == calls
