"""What small models save, hold and multiply, as torch counts them in classes of transformers and of torchtitan."""

import json
import os
import subprocess
from typing import Any

import pytest

from service.catalogue.huggingface.importing import import_config
from service.estimator import Layout, Question, Recipe
from service.estimator.memory.activations import cast_numbers, rank_load_of
from service.estimator.memory.device import SEGMENT_HOLE_BYTES
from service.estimator.memory.states import sharded_lines
from service.estimator.model.counts import sequence_flop
from service.estimator.parallelism.stages import Stage
from service.estimator.question import Cluster, Method, Software
from service.estimator.resolve import resolve
from service.estimator.samples import H100, sample_degrees
from service.estimator.software.stacks import CROSS_ENTROPIES
from service.estimator.workload import Workload
from tests.estimator.memory.torch_cases import BATCH, CASES, TOKENS, Case
from tests.house.source import ROOT
from tests.needing import needs, tool

WITHIN = 0.01
"""Share by which saved bytes may differ: rotary angles, a number a token of each norm, and the like are not counted."""

TITAN = "torchtitan-0.3.0"


def workload_of(case: Case) -> Workload:
    """The case as a question on one device, resolved."""
    config = {"model_type": case.type, **case.config}
    is_stack = case.library in ("transformers", "torchtitan")
    named = {"name": case.library} if is_stack else {"name": "transformers", "implementation": case.library}
    stack = Software(**{"implementation": "eager", **named}, cross_entropy="eager")  # type: ignore[arg-type]
    recipe = Recipe(
        sequence_length=TOKENS, micro_batch=BATCH, stack=stack, method=Method(**case.method),
        precision=case.precision, attention=case.attention, recompute=case.recompute,  # type: ignore[arg-type]
    )  # fmt: skip
    question = Question(
        model=import_config(config).model,
        recipe=recipe,
        layout=Layout(),
        gpu=H100,
        cluster=Cluster(gpu=H100.slug, gpus=1),
    )
    return resolve(question).workload


def predicted(case: Case) -> dict[str, float]:
    """The same counts by the ledger."""
    workload, degrees = workload_of(case), sample_degrees(micro_batch=BATCH)
    counts = workload.ledger.kind_counts()
    stage = Stage(index=0, chunk_counts=(counts,), depths=0, is_first=True, is_last=True)
    layer = Stage(index=1, chunk_counts=((*(0 for _ in counts[1:]), 1),), depths=0, is_first=False, is_last=False)
    load = rank_load_of(workload, degrees, stage)
    flop = sequence_flop(workload.ledger, workload.recompute)
    states = sharded_lines(workload, load)["optimizer_states"]
    again = workload.recompute.granularity == "full" and cast_numbers(workload, degrees, layer)[0]
    cast_bytes = (load.late_cast_numbers - again) * workload.state.gathered_bytes
    return {
        "saved_bytes": float(sum(load.kept_bytes) + load.kept_logits_bytes + cast_bytes),
        "state_bytes": float((states.dense + states.expert) * states.each_bytes),
        "forward_flop": BATCH * flop.full,
        "backward_flop": BATCH * (flop.full_backward + flop.full_rerun),
    }


def said_by_torch(module: str) -> Any:
    """What a module prints in the environment that has transformers, peft and torchtitan."""
    command = [str(tool("torch", "bin", "python")), "-W", "ignore", "-m", f"tests.estimator.memory.{module}"]
    path = os.pathsep.join((str(ROOT), str(tool(TITAN))))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=400,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def counts() -> dict[str, dict[str, float]]:
    """What torch counts of every case."""
    found: dict[str, dict[str, float]] = said_by_torch("torch_counts")
    return found


@needs("exporters")
@pytest.mark.parametrize("name", CASES)
def test_saved_bytes_states_and_flop_are_those_that_torch_counts(
    name: str, counts: dict[str, dict[str, float]]
) -> None:
    found, own = counts[name], predicted(CASES[name])
    assert own.pop("saved_bytes") == pytest.approx(found.pop("saved_bytes"), rel=WITHIN)
    assert own == found


@needs("exporters")
def test_the_hole_of_an_eager_loss_is_that_of_the_allocators_rules() -> None:
    eager = CROSS_ENTROPIES["eager"]
    live, hole = 4 * eager.full_copies, eager.hole_bytes
    assert said_by_torch("torch_holes") == {"live": live, "grown": hole, "opened": SEGMENT_HOLE_BYTES}
