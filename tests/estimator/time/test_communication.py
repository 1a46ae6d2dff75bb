"""Hidden communication never exceeds the compute, and every choice of communication changes the time."""

from dataclasses import replace
from typing import Any, cast

import pytest

from service.estimator import Layout, Model, Question, Recipe, estimate
from service.estimator.answer import Communication
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


def rows(one: Question) -> dict[str, Communication]:
    """What one rank sends, by kind."""
    return {row.kind: row for row in estimate(one).communication}


def test_one_gpu_sends_nothing() -> None:
    assert not estimate(question(DENSE, Recipe(sequence_length=4096))).communication


def test_layers_of_all_kinds_share_a_row() -> None:
    found = rows(asked(SPARSE, Layout(tensor=8, sequence_parallel=True)))
    tensors = [row for row in found.values() if row.axis == "tensor"]
    assert {row.collective for row in tensors} == {"all_gather", "reduce_scatter"}
    assert all(row.calls % 32 == 0 for row in tensors)


def test_a_group_of_several_nodes_uses_the_network() -> None:
    found = rows(asked(DENSE, Layout(tensor=8, zero_stage=1)))
    assert {row.axis: (row.link, row.ranks, row.local_ranks) for row in found.values()} == {
        "tensor": ("scale_up", 8, 8),
        "data": ("network", 2, 1),
    }


def test_gpus_without_fast_links_use_the_bus_of_their_host() -> None:
    split = asked(DENSE, Layout(tensor=2))
    bridged: Any = replace(split.gpu, **cast("Any", {"scale_up_gpus": 1}))
    assert rows(replace(split, gpu=bridged))["tensor_all_gather_activations"].link == "host_bus"


def test_sharded_gradients_travel_for_each_micro_batch() -> None:
    late, early = (rows(asked(DENSE, Layout(zero_stage=stage))) for stage in (1, 2))
    kind = "data_reduce_scatter_gradients"
    assert (late[kind].every, early[kind].every) == ("step", "micro_batch")
    assert (late[kind].calls, early[kind].calls) == (1, 4 * DENSE.num_hidden_layers)


def test_weights_gathered_for_each_micro_batch_and_once_a_step_have_two_rows() -> None:
    one = asked(DENSE, Layout(pipeline=2, zero_stage=3, reshard_after_forward=True))
    one = replace(one, recipe=replace(one.recipe, stack="torchtitan"))
    found = rows(one)
    often, once = found["data_all_gather_weights"], found["data_all_gather_weights_once"]
    assert (often.every, once.every, once.calls) == ("micro_batch", "step", 1)
    exposed = sum(row.exposed_seconds for row in found.values() if row.axis == "data")
    assert exposed == pytest.approx(parts(one)["exposed_data"], rel=1e-9)


def test_experts_and_the_rest_of_the_model_have_rows_of_their_own() -> None:
    found = rows(asked(SPARSE, Layout(expert=8, zero_stage=1)))
    assert found["data_all_gather_weights"].ranks == 16
    assert found["data_all_gather_expert_weights"].ranks == 2


def test_activations_on_the_host_have_a_row() -> None:
    one = asked(DENSE, Layout(tensor=8, offload="activations"))
    away = rows(one)["offload_copy_activations"]
    assert (away.link, away.calls, away.ranks) == ("host", 2 * 32, 1)
    assert away.exposed_seconds == pytest.approx(parts(one)["exposed_offload"], abs=1e-15)
