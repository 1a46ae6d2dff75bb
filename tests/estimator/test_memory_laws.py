"""More work never takes less memory, and more sharding or recompute never more than its buffers; old violations."""

from dataclasses import replace
from itertools import islice, pairwise
from typing import Any, get_args

import pytest

from service.estimator import Cluster, Layout, Question, Recipe, estimate, estimate_memory
from service.estimator.answer import MemoryEstimate, StageMemory
from service.estimator.question import Method, MethodName, OffloadName, Recompute, RecomputeName, StackName
from service.estimator.software.stacks import STACKS
from tests.amounts import amount
from tests.estimator.laws import (
    VERDICTS,
    Violation,
    of_sums,
    plainly,
    shrink,
    software_name,
    violations,
    with_layout,
    with_model,
    with_recipe,
)
from tests.estimator.random_questions import filled, gpus, models, questions

SEED = 20261127
BATCH = 50


@pytest.mark.parametrize("place", range(amount(6, 20)))
def test_no_law_of_memory_is_broken(place: int) -> None:
    """300 questions in all, 50 a test, and 1,000 in `.ci/proof sweeps`; `.ci/proof laws` tries 5,000."""
    found: list[Violation] = []
    for question in questions(BATCH, SEED + place):
        found.extend(violations(question))
    assert not found, "\n".join(str(shrink(one)) for one in islice(found, 3))


def test_questions_reach_every_stack_and_most_models_and_choices() -> None:
    drawn = list(questions(600, SEED))
    assert {software_name(one) for one in drawn} == {*STACKS}
    assert len({plainly(one.model) for one in drawn}) > 100
    assert {one.layout.zero_stage for one in drawn} >= {None, 0, 1, 2, 3}
    assert len({plainly(one.recipe.recompute) for one in drawn}) >= 8
    assert {one.layout.offload for one in drawn} == {*get_args(OffloadName)}


def test_same_seed_gives_the_same_questions() -> None:
    assert list(questions(5, 1)) == list(questions(5, 1)) != list(questions(5, 2))


def job(model: str, sequence_length: int, layout: Layout, **recipe: Any) -> Question:
    """A job on H100 GPUs, as many as its layout needs."""
    gpu = gpus()["h100-sxm5-80gb"]
    cluster = Cluster(gpu=gpu.slug, gpus=1)
    recipe = {"sequence_length": sequence_length, **recipe}
    return filled(Question(model=models()[model], recipe=Recipe(**recipe), layout=layout, cluster=cluster, gpu=gpu))


def device_bytes(answer: MemoryEstimate) -> float:
    """Bytes in use on the fullest device."""
    return answer.memory.device_peak_bytes.value


def fullest(answer: MemoryEstimate) -> StageMemory:
    """The fullest stage."""
    return answer.memory.stages[answer.memory.peak_stage]


def rise(answers: list[MemoryEstimate]) -> None:
    """Assert that bytes never fall and verdicts never improve."""
    for less, more in pairwise(answers):
        assert device_bytes(more) >= device_bytes(less)
        assert VERDICTS.index(more.verdict) >= VERDICTS.index(less.verdict)


def gemma(sequence_length: int, data: int = 4, recompute: RecomputeName = "none") -> MemoryEstimate:
    """gemma-2-9b with nanotron, two tensor ranks."""
    layout = Layout(tensor=2, data=data)
    return estimate_memory(job("gemma-2-9b", sequence_length, layout, stack="nanotron", recompute=recompute))


def test_cached_bytes_fill_the_device_before_they_are_given_back() -> None:
    """76.3 GB at 2,048 tokens and 60.6 GB at 3,072, at 2026.11.6: only its later steps hold so little."""
    answers = [gemma(length) for length in range(1024, 12289, 1024)]
    rise(answers)
    assert answers[-1].verdict == "out_of_memory"
    freed = [fullest(one).settled_reserved_bytes < fullest(one).reserved_peak_bytes for one in answers]
    first = freed.index(True)
    longer, shorter = fullest(answers[first]), fullest(answers[first - 1])
    assert longer.settled_reserved_bytes < shorter.settled_reserved_bytes


def test_more_replicas_take_no_more_of_each() -> None:
    for length in (2048, 3072, 4096):
        assert device_bytes(gemma(length, data=8)) <= device_bytes(gemma(length, data=4))


def test_recompute_makes_no_job_that_fits_one_at_risk() -> None:
    for length in range(1024, 9217, 1024):
        rise([gemma(length, recompute="full"), gemma(length)])


def test_a_flat_copy_that_finds_room_among_activations_takes_no_bytes_back() -> None:
    """The rank's part of the weights is copied into a freed activation as soon as one is as large."""
    layout = Layout(tensor=1, pipeline=2, data=16)
    rise(
        [estimate_memory(job("llama-3.2-1b", length, layout, stack="nanotron")) for length in range(1024, 16385, 1024)]
    )


@pytest.mark.parametrize(
    ("model", "length", "layout", "rule"),
    [
        ("small dense", 6144, Layout(data=2, pipeline=8), Recompute(granularity="full")),
        ("small dense", 6144, Layout(data=2, pipeline=8), Recompute(granularity="full", layers=2)),
        ("small sparse", 2048, Layout(data=8, pipeline=4), Recompute(granularity="selective", modules=("mlp",))),
    ],
    ids=["layers", "groups", "products"],
)
def test_a_flat_copy_finds_room_among_activations_that_are_computed_again(
    model: str, length: int, layout: Layout, rule: Recompute
) -> None:
    """6.33 GB reserved without recompute and 6.41 GB with groups of two layers, as first counted."""
    kept = job(model, length, layout, attention="eager", stack="nanotron")
    rise([estimate_memory(with_recipe(kept, recompute=rule)), estimate_memory(kept)])
    lengths = range(1024, 12289, 1024)
    rise([estimate_memory(with_recipe(kept, sequence_length=each, recompute=rule)) for each in lengths])


@pytest.mark.parametrize(("stack", "tensor"), [("nanotron", 2), ("fsdp1", 1), ("torchtitan", 1)])
def test_longer_sequences_never_take_less_near_the_end_of_the_device(stack: StackName, tensor: int) -> None:
    layout = Layout(data=8, tensor=tensor)
    answers = [estimate_memory(job("llama-3.1-8b", length, layout, stack=stack)) for length in range(512, 24577, 512)]
    rise(answers)
    assert {one.verdict for one in answers} >= {"at_risk", "out_of_memory"}


def llama(zero_stage: Any, stack: StackName = "megatron-core", **layout: Any) -> MemoryEstimate:
    """llama-3.1-8b in a pipeline of two stages, eight replicas."""
    given = Layout(pipeline=2, data=8, zero_stage=zero_stage, **layout)
    return estimate_memory(job("llama-3.1-8b", 2048, given, global_batch=64, stack=stack))


def test_sharded_weights_in_a_pipeline_take_less_than_whole_ones() -> None:
    """25.8 GB at ZeRO-2 and 40.9 GB at ZeRO-3 at 2026.11.6: Megatron-FSDP frees and reduces layer by layer."""
    answers = [llama(stage) for stage in (0, 1, 2, 3)]
    assert all(device_bytes(more) < device_bytes(less) for less, more in pairwise(answers))
    (gathered,) = (line.bytes for line in fullest(answers[3]).lines if line.kind == "gathered_weights")
    assert gathered < 2e9
    assert answers[3].resolved.layout.reshard_after_forward


def test_torchtitan_keeps_weights_in_a_pipeline_unless_it_always_frees_them() -> None:
    usual, always = llama(3, "torchtitan"), llama(3, "torchtitan", reshard_after_forward=True)
    assert (usual.resolved.layout.reshard_after_forward, always.resolved.layout.reshard_after_forward) == (False, True)
    assert device_bytes(always) < device_bytes(usual) < device_bytes(llama(0, "torchtitan"))


def test_freed_weights_are_gathered_again_for_every_micro_batch_of_a_pipeline() -> None:
    layout = Layout(pipeline=2, data=8, zero_stage=3, reshard_after_forward=False)
    kept = job("llama-3.1-8b", 2048, layout, global_batch=64, stack="torchtitan")
    freed = with_layout(kept, reshard_after_forward=True)
    assert estimate(freed).step.step_seconds.value > estimate(kept).step.step_seconds.value


BLOCK = Recompute(granularity="full", method="block", layers=1)


@pytest.mark.parametrize("offload", ["none", "activations"])
@pytest.mark.parametrize("rule", [BLOCK, "full", "selective"], ids=plainly)
def test_a_block_that_runs_again_takes_no_more_than_all_that_is_kept(offload: OffloadName, rule: Any) -> None:
    """What a block's other layers keep is gone by the time that the block runs backward."""
    kept = job("llama-3.1-8b", 8192, Layout(data=8, offload=offload), stack="deepspeed")
    rise([estimate_memory(with_recipe(kept, recompute=rule)), estimate_memory(kept)])


def test_a_layer_needs_buffers_beside_what_that_layer_computes_again() -> None:
    """One dense layer among sparse ones: another kind's buffers are not there at the same time."""
    kept = job("small sparse", 8192, Layout(), attention="eager", stack="fsdp1")
    selective = with_recipe(kept, recompute=Recompute(granularity="selective", modules=("mlp",)))
    assert (
        fullest(estimate_memory(selective)).allocated_peak_bytes <= fullest(estimate_memory(kept)).allocated_peak_bytes
    )
    rule = Recompute(granularity="full", layers=2)
    narrow = job("glm-4.5-air", 32768, Layout(), attention="eager", stack="nanotron", recompute=rule)
    wide = with_model(narrow, intermediate_size=2 * (narrow.model.intermediate_size or 0))
    assert fullest(estimate_memory(wide)).allocated_peak_bytes > fullest(estimate_memory(narrow)).allocated_peak_bytes


def test_weights_that_are_cast_again_are_no_more_than_all() -> None:
    """Layers of different size: the mean of those that run again is less than the largest one."""
    kept = job("deepseek-v2", 32768, Layout(offload="optimizer-and-activations"), attention="eager", stack="torchtitan")
    rise([estimate_memory(with_recipe(kept, recompute=BLOCK)), estimate_memory(kept)])


def test_a_single_replica_gathers_nothing_into_a_flat_copy() -> None:
    one, two = (estimate_memory(job("llama-3.2-1b", 4096, Layout(data=data), stack="nanotron")) for data in (1, 2))
    assert fullest(one).cached_bytes == 0 < fullest(two).cached_bytes


def test_a_wider_layer_that_is_not_the_largest_takes_nothing_back() -> None:
    """Where activations are away, what a dense layer frees as it runs backward was not among those that stayed."""
    asked = job("glm-4.5-air", 32768, Layout(offload="activations"), attention="eager", stack="torchtitan")
    widths = (10944, 16384, 21888)
    rise([estimate_memory(replace(asked, model=replace(asked.model, intermediate_size=width))) for width in widths])


@pytest.mark.parametrize(("name", "parts"), [("full", 0), ("lora", 1)])
def test_parameters_of_stages_count_adapters_and_the_copy_of_a_tied_head(name: MethodName, parts: int) -> None:
    answer = estimate(job("gemma-2-9b", 1024, Layout(pipeline=2), method=Method(name=name)))
    counts = answer.parameters
    assert (counts.adapters > 0) == bool(parts)
    assert sum(stage.total for stage in counts.stages) == counts.total + counts.adapters + counts.input_embedding


@pytest.mark.parametrize(("stack", "copies"), [("deepspeed", 0), ("nanotron", 0), ("megatron-core", 1)])
def test_a_stage_copies_the_embedding_for_depths_that_its_stack_trains(stack: StackName, copies: int) -> None:
    asked = job("small latent", 4096, Layout(pipeline=4), stack=stack)
    counts = estimate(asked).parameters
    copied = sum(stage.total for stage in counts.stages) - counts.total_with_multi_token_prediction
    assert copied == copies * counts.input_embedding
    assert not list(of_sums(asked))


def test_sharded_gradients_are_updated_group_by_group_where_ranks_share_experts() -> None:
    """1,812 GB at ZeRO-1 and 1,876 GB at ZeRO-2, as counted when DeepSpeed made all fp32 gradients at once."""
    whole, sharded = (
        fullest(estimate_memory(job("deepseek-v3", 2048, layout, stack="deepspeed")))
        for layout in (Layout(context=8, expert=8, zero_stage=1), Layout(context=8, expert=8, zero_stage=2))
    )
    assert sharded.allocated_peak_bytes < whole.allocated_peak_bytes
    assert sharded.first_step_peak_bytes < whole.first_step_peak_bytes


def test_a_group_that_runs_again_holds_no_more_layers_than_there_are() -> None:
    """The first layer keeps no input where nothing before it is trained, so it holds less than the largest one."""
    model = replace(models()["opt-13b"], num_hidden_layers=2, scalar_head=True)
    method = Method(name="qlora", rank=1, targets=("all-linear",), quantization="gptq")
    kept = replace(job("opt-13b", 256, Layout(), stack="fsdp1", method=method), model=model)
    rise([estimate_memory(with_recipe(kept, recompute=Recompute(granularity="full", layers=2))), estimate_memory(kept)])


def test_a_group_that_runs_again_holds_the_largest_layer_as_often_as_there_is_one() -> None:
    """9.15 GB without recompute and 9.17 GB with groups of two layers, as counted when each was as large as one is."""
    gpu = gpus()["p100-sxm2-16gb"]
    kept = replace(job("small hybrid", 8192, Layout(pipeline=2)), gpu=gpu)
    kept = replace(kept, cluster=replace(kept.cluster, gpu=gpu.slug))
    rise([estimate_memory(with_recipe(kept, recompute=Recompute(granularity="full", layers=2))), estimate_memory(kept)])


def test_a_module_that_runs_again_takes_no_room_from_flat_copies_beside_the_largest_result() -> None:
    """60.0 GB without recompute and 60.3 GB with the MLP's, as counted when its layer kept no other result."""
    wide = replace(models()["gpt3-175b"], vocab_size=262144, num_hidden_layers=1, intermediate_size=1000)
    kept = replace(job("gpt3-175b", 32768, Layout(data=16, context=4), stack="nanotron"), model=wide)
    rule = Recompute(granularity="selective", modules=("mlp",))
    rise([estimate_memory(with_recipe(kept, recompute=rule)), estimate_memory(kept)])


def test_a_wider_latent_takes_nothing_back_where_tensor_ranks_split_its_tokens() -> None:
    """2.51 GB reserved at rank 512 and 2.48 GB at 1,024, as counted when each rank had the latents of all tokens."""
    layout = Layout(data=64, tensor=8, context=8, pipeline=8, expert=2)
    asked = job("small latent", 16384, layout, stack="nanotron", global_batch=1024)
    asked = with_model(asked, num_hidden_layers=64, tie_word_embeddings=True)
    asked = with_model(asked, num_experts=16, num_experts_per_tok=4, moe_intermediate_size=512)
    rise([estimate_memory(with_model(asked, q_lora_rank=rank)) for rank in (512, 768, 1024, 2048)])
