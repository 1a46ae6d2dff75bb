"""Launches of the host: what graphs, dispatchers and formats leave of them, and what they make a step wait for."""

from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.estimator import estimate
from service.estimator.question import Question
from service.estimator.resolve import resolve
from service.estimator.time import host
from service.validation.questions import read_question
from tests.estimator.time.test_narrow_kernels import MODEL

LOCAL_EXPERTS = 16 // 8
"""Experts of the model over expert ranks."""


def question(gpu: str = "h100-sxm5-80gb", tokens: int = 512, precision: str = "bf16-mixed", **stack: Any) -> Question:
    """A step of a small mixture of experts, whose kernels are shorter than their launches."""
    recipe = {"sequence_length": tokens, "global_batch": 64, "precision": precision}
    body = {
        "model": MODEL,
        "recipe": {**recipe, "stack": {"name": "megatron-core", "dispatcher": "alltoall", **stack}},
        "layout": {"expert": 8},
        "cluster": {"gpu": gpu, "gpus": 8},
    }
    return read_question(body, shipped_catalogue()).question


def waited(**given: Any) -> float:
    """Seconds of a step for which the device waits for the host."""
    return sum(part.seconds for part in estimate(question(**given)).step.parts if part.kind == "host")


def launches(**given: Any) -> float:
    """Launches of a layer of experts beyond those of a dense one."""
    resolved = resolve(question(**given))
    return float(host.sparse_launches(resolved.workload, resolved.degrees))


def test_graphs_take_away_what_they_hold() -> None:
    assert waited() > waited(cuda_graphs=True, partial_graphs=True) > 0
    assert waited(cuda_graphs=True) == 0
    assert launches() - launches(cuda_graphs=True, partial_graphs=True) == host.ROUTER_LAUNCHES


@pytest.mark.parametrize(
    ("given", "further"),
    [
        ({"dispatcher": "flex"}, host.DISPATCH_LAUNCHES["flex"] - host.DISPATCH_LAUNCHES["alltoall"]),
        ({"precision": "fp8-tensorwise"}, LOCAL_EXPERTS * host.NARROW_LAUNCHES),
    ],
    ids=["flex", "fp8"],
)
def test_launches_are_of_dispatcher_and_format(given: dict[str, Any], further: float) -> None:
    assert launches(**given) - launches() == further


def test_the_device_waits_only_for_what_compute_and_transfers_leave() -> None:
    assert waited(tokens=32_768) == 0


def test_an_update_launches_the_matrices_of_every_expert() -> None:
    resolved = resolve(question())
    found = estimate(question()).step
    once = LOCAL_EXPERTS * host.UPDATED_MATRICES * host.UPDATE_LAUNCHES * MODEL["num_hidden_layers"]
    least = once * resolved.workload.constants.host_launch_seconds
    stack = estimate(question(cuda_graphs=True)).step
    update, graphed = (next(part.seconds for part in step.parts if part.kind == "optimizer") for step in (found, stack))
    assert update >= 0.75 * least
    assert graphed <= update
