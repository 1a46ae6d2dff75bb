"""Hidden communication never exceeds the compute, and every choice of communication changes the time."""

from dataclasses import replace
from typing import Any, cast

import pytest

from service.estimator import Layout, Model, Question, Recipe, estimate
from service.estimator.answer import Communication, Estimate
from service.estimator.memory.activations import rank_load_of
from service.estimator.parallelism.stages import stage_at
from service.estimator.question import Software, StackName, ZeroStage
from service.estimator.samples import sample_degrees, sample_workload
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


def test_tensor_ranks_gather_fp8_where_products_read_it() -> None:
    wide = asked(DENSE, Layout(tensor=8))
    narrow = replace(wide, recipe=replace(wide.recipe, precision="fp8-tensorwise"))
    sent = [rows(one)["tensor_all_gather_activations"].tensor_bytes for one in (wide, narrow)]
    assert sent[0] == 2 * sent[1]


def test_a_ring_attends_piece_by_piece() -> None:
    seconds = [parts(asked(DENSE, Layout(context=2, context_method=one))) for one in ("ring", "all-gather")]
    assert seconds[0]["attention"] > seconds[1]["attention"]
    assert seconds[0]["gemm"] == seconds[1]["gemm"]


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
    assert (late[kind].calls, early[kind].calls) == (5, 4 * (DENSE.num_hidden_layers + 1))


def test_weights_gathered_for_each_micro_batch_and_once_a_step_have_two_rows() -> None:
    one = asked(DENSE, Layout(pipeline=2, zero_stage=3, reshard_after_forward=True))
    one = replace(one, recipe=replace(one.recipe, stack="torchtitan"))
    found = rows(one)
    often, once = found["data_all_gather_weights"], found["data_all_gather_weights_once"]
    assert (often.every, once.every, once.calls) == ("micro_batch", "step", 4 + 1)
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


REPLICAS = 16


def replicas(name: StackName, zero_stage: ZeroStage, **software: Any) -> Estimate:
    """An answer about replicas alone."""
    recipe = Recipe(sequence_length=4096, global_batch=64, stack=Software(name=name, **software))
    return estimate(question(DENSE, recipe, Layout(data=REPLICAS, zero_stage=zero_stage), gpus=REPLICAS))


def calls(answer: Estimate) -> dict[str, float]:
    """Calls of the data group by collective."""
    return {row.collective: row.calls for row in answer.communication}


def sent(answer: Estimate) -> float:
    """Bytes that one rank sends in one step."""
    return sum(row.calls * row.sent_bytes for row in answer.communication)


def test_a_matrix_fills_a_bucket_of_its_own_where_it_is_larger() -> None:
    matrices = 4 + 3  # of attention and of the gated MLP
    whole = matrices * DENSE.num_hidden_layers + 2
    norms = 2 * DENSE.num_hidden_layers + 1
    assert calls(replicas("transformers", 0, reduce_bucket_numbers=1)) == {"all_reduce": whole + norms}
    assert calls(replicas("transformers", 0, reduce_bucket_numbers=1 << 40)) == {"all_reduce": 1}


@pytest.mark.parametrize(
    ("name", "zero_stage", "expected"),
    [
        ("deepspeed", 1, {"reduce_scatter": 1, "all_gather": 1}),
        ("deepspeed", 2, {"reduce_scatter": 4, "all_gather": 1}),
        ("torchtitan", 3, {"reduce_scatter": 4 * 10, "all_gather": 4 * (10 + 9)}),
        ("fsdp1", 3, {"reduce_scatter": 4 * 9, "all_gather": 4 * (9 + 8)}),
    ],
)
def test_calls_of_a_step_as_the_stack_buckets_them(
    name: StackName, zero_stage: ZeroStage, expected: dict[str, float]
) -> None:
    assert DENSE.num_hidden_layers == 8
    assert calls(replicas(name, zero_stage)) == expected


def test_later_stages_of_megatron_fill_no_buckets() -> None:
    first, last = (
        rank_load_of(workload, degrees, stage_at(workload, degrees, index, None, 1)).parameters.dense_reductions
        for workload, degrees in [(sample_workload(), sample_degrees(data=8, pipeline=2, zero_stage=1))]
        for index in (0, 1)
    )
    assert first > 16 * 3
    assert last == 1


FILLED: tuple[tuple[StackName, ZeroStage], ...] = (
    ("megatron-core", 0), ("megatron-core", 1), ("deepspeed", 0), ("deepspeed", 1), ("deepspeed", 2), ("deepspeed", 3),
    ("nanotron", 1), ("transformers", 0), ("fsdp1", 0),
)  # fmt: skip


@pytest.mark.parametrize(("name", "zero_stage"), FILLED)
def test_larger_buckets_mean_fewer_calls_of_the_same_bytes_and_no_less_memory(
    name: StackName, zero_stage: ZeroStage
) -> None:
    small, large = (replicas(name, zero_stage, reduce_bucket_numbers=size) for size in (10**6, 10**8))
    assert sum(calls(small).values()) > sum(calls(large).values())
    assert sent(small) == pytest.approx(sent(large))
    assert small.step.step_seconds.value > large.step.step_seconds.value
    held = [{one.kind: one.bytes for one in answer.memory.stages[0].lines} for answer in (small, large)]
    copied = [one.get("gradient_buckets", 0.0) for one in held]
    assert copied[0] < copied[1] if name == "deepspeed" and zero_stage > 0 else held[0] == held[1]


def test_weights_that_are_gathered_ahead_have_a_bucket() -> None:
    small, large = (replicas("deepspeed", 3, gather_bucket_numbers=size) for size in (10**6, 10**8))
    assert calls(small)["all_gather"] > calls(large)["all_gather"]
    assert calls(small)["reduce_scatter"] == calls(large)["reduce_scatter"]
    assert sent(small) == pytest.approx(sent(large))
    assert small.memory.allocated_peak_bytes.value < large.memory.allocated_peak_bytes.value


@pytest.mark.parametrize(
    ("name", "zero_stage", "field"),
    [
        ("megatron-core", 0, "overlap_reduce"),
        ("megatron-core", 1, "overlap_reduce"),
        ("megatron-core", 1, "overlap_gather"),
        ("megatron-core", 3, "overlap_gather"),
        ("deepspeed", 2, "overlap_reduce"),
        ("deepspeed", 3, "overlap_reduce"),
        ("fsdp1", 3, "overlap_gather"),
    ],
)
def test_without_overlap_every_second_is_exposed(name: StackName, zero_stage: ZeroStage, field: str) -> None:
    on, off = (replicas(name, zero_stage, **{field: value}) for value in (True, False))
    content = "gradients" if field == "overlap_reduce" else "weights"
    waiting = [row for row in off.communication if row.content == content]
    assert waiting
    assert all(row.hidden_seconds == 0 and row.exposed_seconds == row.seconds for row in waiting)
    hidden, exposed = (
        [sum(getattr(row, f"{kind}_seconds") for row in answer.communication) for answer in (on, off)]
        for kind in ("hidden", "exposed")
    )
    assert hidden[0] > hidden[1]
    assert exposed[0] < exposed[1]
    assert off.step.step_seconds.value > on.step.step_seconds.value


def test_deepspeed_overlaps_as_it_says_and_fills_a_second_bucket_for_it() -> None:
    defaults: tuple[tuple[ZeroStage, bool], ...] = ((1, False), (2, False), (3, True))
    for zero_stage, default in defaults:
        usual, chosen = (replicas("deepspeed", zero_stage, overlap_reduce=one) for one in (None, default))
        assert usual.communication == chosen.communication
    alone, both = (replicas("deepspeed", 2, overlap_reduce=one, reduce_bucket_numbers=10**8) for one in (False, True))
    buckets = [
        next(line.bytes for line in one.memory.stages[0].lines if line.kind == "gradient_buckets")
        for one in (alone, both)
    ]
    assert buckets[1] == 2 * buckets[0]


def test_a_stage_with_chunks_exchanges_each_beside_those_that_are_still_to_come() -> None:
    """The exchange outlasts one backward pass, and not those of the groups that a chunk waits for."""
    stages = Layout(data=8, pipeline=2, zero_stage=1)
    layouts = [replace(stages, virtual_pipeline=chunks) for chunks in (1, 4)]
    whole, chunked = (parts(asked(DENSE, one), link_bytes_per_s=1e11)["exposed_data"] for one in layouts)
    assert chunked < whole / 2


def test_replicas_gather_fp8_weights_as_bytes() -> None:
    wide = asked(DENSE, Layout(data=16, zero_stage=1))
    wide = replace(wide, recipe=replace(wide.recipe, precision="fp8-tensorwise"))
    narrow = replace(wide, recipe=replace(wide.recipe, fp8_weights=True))
    sent = [rows(one)["data_all_gather_weights"] for one in (wide, narrow)]
    half = sent[0].tensor_bytes * sent[0].calls / 2
    assert half < sent[1].tensor_bytes * sent[1].calls < 1.5 * half


def test_tensor_ranks_cast_their_share_of_what_they_gather() -> None:
    """A rank casts an eighth, and transposes the whole on Hopper."""
    split = asked(DENSE, Layout(tensor=8), tensor_overlap=False)
    split = replace(split, recipe=replace(split.recipe, precision="fp8-tensorwise"))
    whole = replace(split, layout=replace(split.layout, sequence_parallel=False))
    assert 0.6 < parts(split)["cast"] / parts(whole)["cast"] < 0.9
