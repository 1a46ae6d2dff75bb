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


def launches(**given: Any) -> int:
    """Launches of a layer of experts beyond those of a dense one."""
    return host.sparse_launches(resolve(question(**given)).workload)


def expert_seconds(**given: Any) -> float:
    """Seconds that one local expert takes the host."""
    return host.expert_host_seconds(resolve(question(**given)).workload)


def test_graphs_take_away_what_they_hold() -> None:
    assert waited() > waited(cuda_graphs=True, partial_graphs=True) > 0
    assert waited(cuda_graphs=True) == 0
    assert launches() - launches(cuda_graphs=True, partial_graphs=True) == host.ROUTER_LAUNCHES


def test_launches_are_of_the_dispatcher() -> None:
    launched = host.DISPATCH_LAUNCHES
    assert launches(dispatcher="flex") - launches() == launched["flex"] - launched["alltoall"]


def test_an_expert_launches_its_products_and_what_makes_them_narrow() -> None:
    assert expert_seconds() == host.EXPERT_LAUNCHES * host.NATIVE_SECONDS
    narrow = host.NARROW_LAUNCHES * host.NATIVE_SECONDS
    assert expert_seconds(precision="fp8-tensorwise") - expert_seconds() == pytest.approx(narrow)
    assert expert_seconds(gpu="b200-sxm-180gb", precision="mxfp8", fused_experts=True) == 0


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
