"""Hidden communication never exceeds the compute, and every choice of communication changes the time."""

from dataclasses import replace
from typing import Any, cast

import pytest

from service.estimator import Layout, Model, Question, Recipe, estimate
from service.estimator.question import Software
from tests.ask import question
from tests.estimator.small_models import DENSE, SPARSE

ENGINE = Software(name="megatron-core")


def asked(model: Model, layout: Layout, **software: Any) -> Question:
    """A question about two nodes."""
    recipe = Recipe(sequence_length=4096, global_batch=64, stack=replace(ENGINE, **software))
    return question(model, recipe, layout, gpus=16)


def parts(one: Question, **rates: float) -> dict[str, float]:
    """Seconds of one step by kind, with other rates of the GPU."""
    gpu: Any = replace(one.gpu, **cast("Any", rates))
    step = estimate(replace(one, gpu=gpu)).step
    return {part.kind: part.seconds for part in step.parts} | {"step": step.step_seconds.value}


def test_sends_between_chunks_hide_no_longer_than_a_stage_computes() -> None:
    chunks = asked(DENSE, Layout(tensor=8, pipeline=2, virtual_pipeline=2))
    assert parts(chunks)["exposed_pipeline"] == 0
    slow, slower = (parts(chunks, inter_node_bytes_per_s=rate) for rate in (2e6, 1e6))
    assert slow["exposed_pipeline"] > 0
    assert slower["step"] > 1.9 * slow["step"]


def test_tensor_ranks_hide_no_longer_than_they_compute() -> None:
    split = asked(DENSE, Layout(tensor=8))
    waited = replace(split, recipe=replace(split.recipe, stack=replace(ENGINE, tensor_overlap=False)))
    fast, usual = (parts(one)["exposed_tensor"] for one in (split, waited))
    assert fast < usual
    hidden, whole = (parts(one, link_bytes_per_s=1e7)["exposed_tensor"] for one in (split, waited))
    assert hidden == pytest.approx(whole, rel=0.05)


def test_tensor_ranks_that_do_not_split_the_sequence_hide_nothing() -> None:
    whole = [asked(DENSE, Layout(tensor=8, sequence_parallel=False), tensor_overlap=one) for one in (None, False)]
    assert parts(whole[0]) == parts(whole[1])


def test_experts_that_gather_every_token_send_more() -> None:
    seconds = [
        parts(asked(SPARSE, Layout(expert=8), dispatcher=name))["exposed_expert"] for name in ("alltoall", "allgather")
    ]
    assert seconds[1] > seconds[0]


def test_experts_one_after_another_fill_no_wave_together() -> None:
    grouped, apart = (parts(asked(SPARSE, Layout(), grouped_experts=one))["gemm"] for one in (True, False))
    assert grouped < apart
