"""Lines of a stage against arithmetic by hand, where no published run tells one apart."""

from dataclasses import replace
from typing import Any

import pytest

from service.estimator import Layout, Model, Question, Recipe, estimate
from service.estimator.memory.memory import StageBytes
from service.estimator.memory.states import checkpoint_bytes
from service.estimator.question import Cluster, Method, Software, Versions
from service.estimator.resolve import resolve
from service.estimator.run.run import rank_bytes_of, stages_of
from service.estimator.samples import H100, LLAMA_3_8B
from service.estimator.software.versions import LARGE_TE_WORKSPACE_BYTES
from tests.estimator.memory.torch_cases import PURE
from tests.estimator.small_models import SPARSE

PARAMETERS = 8_030_261_248
VOCABULARY, HIDDEN, LENGTH = 128_256, 4096, 8192
LAYER = 218_112_000
TABLE = VOCABULARY * HIDDEN
LOGITS = LENGTH * VOCABULARY


def held(layout: Layout, gpus: int, model: Model = LLAMA_3_8B, **recipe: Any) -> list[StageBytes]:
    """Bytes of every stage of Llama 3 8B, or of another model."""
    asked = Question(
        model=model,
        recipe=Recipe(**{"sequence_length": LENGTH, **recipe}),
        layout=layout,
        cluster=Cluster(gpu=H100.slug, gpus=gpus),
        gpu=H100,
    )
    found = resolve(asked)
    return [rank_bytes_of(found, one) for one in stages_of(found)]


def test_gpipe_keeps_what_each_loss_keeps_and_one_peak() -> None:
    last = held(Layout(pipeline=4, schedule="gpipe"), 4, global_batch=8, stack="torchtitan")[-1]
    three_copies, one_copy = 12, 4
    assert last.logits == LOGITS * (three_copies + 7 * one_copy)


@pytest.mark.parametrize(("batch", "waits"), [(32, True), (4, False)])
def test_whole_gradients_wait_for_the_last_micro_batch_in_a_pipeline(batch: int, waits: bool) -> None:
    first = held(Layout(pipeline=4, zero_stage=3), 16, global_batch=batch, stack="torchtitan")[0]
    whole = 4 * (8 * LAYER + TABLE)
    assert first.early_gradients == (whole if waits else 0)


@pytest.mark.parametrize(("zero_stage", "holders"), [(0, 1), (1, 2)])
def test_two_holders_of_a_stage_share_its_optimizer_only_with_zero(zero_stage: Any, holders: int) -> None:
    layout = Layout(pipeline=4, data=1, schedule="dualpipe", zero_stage=zero_stage)
    first = held(layout, 4, global_batch=16)[0]
    two_stages = 2 * 8 * LAYER + 2 * TABLE + HIDDEN
    assert first.weights == 2 * two_stages
    assert first.optimizer_states == 8 * two_stages / holders


def test_both_ends_of_dualpipe_share_a_tied_table() -> None:
    tied, layout = replace(LLAMA_3_8B, tie_word_embeddings=True), Layout(pipeline=4, data=1, schedule="dualpipe")
    apart = held(replace(layout, schedule="1f1b"), 4, tied, global_batch=16)
    joined = held(layout, 4, tied, global_batch=16)
    assert apart[0].weights + apart[-1].weights - joined[0].weights == 2 * TABLE
    assert joined[0].weights == joined[-1].weights
    assert joined[0].gradients == 2 * joined[0].weights


def test_what_an_activation_reads_takes_half_in_fp8() -> None:
    usual, narrow = (
        held(Layout(), 1, stack=Software(name="megatron-core", fp8_activation_inputs=is_narrow))[0].activations
        for is_narrow in (False, True)
    )
    assert usual - narrow == 32 * LENGTH * 2 * (LLAMA_3_8B.intermediate_size or 0)


@pytest.mark.parametrize(("grouped", "whole"), [(False, 0), (True, 4 * (4 * LAYER + TABLE / 2))])
def test_grouped_reductions_hold_the_gradients_of_a_chunk(grouped: bool, whole: float) -> None:
    layout = Layout(pipeline=4, virtual_pipeline=2, zero_stage=2)
    stack = Software(name="megatron-core", grouped_reductions=grouped)
    first = held(layout, 16, global_batch=32, stack=stack)[0]
    assert first.early_gradients - first.gradients == whole
    assert first.reduced_gradients == whole + 2 * TABLE


def test_weights_outside_layers_keep_their_precision() -> None:
    first, inner, *_ = held(Layout(pipeline=4, data=1), 4, global_batch=4, precision="fp8-deepseek")
    norms = 2 * HIDDEN * 8
    assert inner.weights == 8 * LAYER + norms
    assert first.weights == inner.weights + 2 * TABLE


def test_both_ends_of_dualpipe_have_the_workspaces_of_the_head() -> None:
    first, inner, _, last = held(Layout(tensor=2, pipeline=4, data=1, schedule="dualpipe"), 8, global_batch=16)
    assert first.workspace == last.workspace > inner.workspace


def test_a_router_brings_the_engines_workspace_to_layers_of_another_kind() -> None:
    alone = Software(name="megatron-core", implementation="local")
    model = replace(LLAMA_3_8B, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=1024)
    dense, sparse = (held(Layout(), 1, model=one, stack=alone)[0].workspace for one in (LLAMA_3_8B, model))
    assert sparse - dense == LARGE_TE_WORKSPACE_BYTES


def test_an_offloaded_optimizer_takes_its_gradients_along() -> None:
    (only,) = held(
        Layout(zero_stage=1, offload="optimizer"), 8, global_batch=8, stack="deepspeed", precision="fp16-mixed"
    )
    assert only.host == 16 * PARAMETERS / 8
    assert (only.persistent_gradients, only.step_gradients, only.optimizer_states) == (0, 0, 0)


def test_offloaded_moments_leave_the_master_copy_and_the_gradients_of_the_step() -> None:
    rest, moments = (
        held(Layout(zero_stage=1, offload=name), 8, global_batch=8, gradient_dtype="bf16")[0]
        for name in ("none", "moments")
    )
    assert moments.optimizer_states == 0 < moments.master_weights == rest.master_weights
    assert moments.step_gradients == rest.step_gradients > 0
    assert moments.host == 16 * PARAMETERS / 8


@pytest.mark.parametrize(
    ("each", "recipe"),
    [
        (4, {}),
        (0, {"moment_dtype": "bf16"}),
        (0, {"master_dtype": "fp32"}),
        (4, {"moment_dtype": "bf16", "precision": "fp8-blockwise"}),
        (0, {"master_dtype": "fp16", "precision": "fp8-blockwise"}),
        (4, {"moment_dtype": "bf16", "stack": Software(name="megatron-core", decoupled_gradients=False)}),
        (0, {"stack": Software(name="megatron-core", decoupled_gradients=True)}),
    ],
)
def test_half_gradients_are_copied_for_the_step_unless_its_kernel_reads_them(each: int, recipe: dict[str, Any]) -> None:
    (only,) = held(Layout(zero_stage=1), 1, gradient_dtype="bf16", **recipe)
    assert only.step_gradients == each * PARAMETERS


def test_deepspeed_frees_what_it_makes_inside_the_step() -> None:
    (only,) = held(Layout(zero_stage=2), 1, stack="deepspeed")
    assert only.step_gradients > 0
    assert only.left_step_gradients == 0


EMBEDDED = Method(name="lora", rank=8, targets=("q_proj",), whole=("embedding", "head"))
ADAPTERS = 32 * 8 * (HIDDEN + HIDDEN)
"""Numbers of an adapter of rank 8 beside each q_proj."""


@pytest.mark.parametrize(("zero_stage", "each"), [(2, 2 + 4), (3, 2 + 4)])
def test_deepspeed_makes_fp32_gradients_of_a_flat_copy(zero_stage: Any, each: int) -> None:
    adapters = Method(name="lora", rank=8, targets=("q_proj",))
    (only,) = held(Layout(zero_stage=zero_stage), 1, stack="deepspeed", method=adapters)
    assert only.step_gradients == each * ADAPTERS


@pytest.mark.parametrize(("is_tied", "tables"), [(False, 2), (True, 1)])
def test_a_table_that_is_the_head_too_is_gathered_once(is_tied: bool, tables: int) -> None:
    model = replace(LLAMA_3_8B, tie_word_embeddings=is_tied)
    (only,) = held(Layout(zero_stage=3), 8, model=model, stack="fsdp1")
    assert only.gathered_weights == 2 * (LAYER + tables * TABLE + HIDDEN)


EXPERTS = 8 * 3 * 1024 * 512
"""Numbers of one layer's experts on a rank, half of all."""


@pytest.mark.parametrize(("layers", "numbers"), [(8, 7 * EXPERTS), (29, 178_956_971)])
def test_deepspeed_updates_one_group_of_experts_at_a_time(layers: int, numbers: int) -> None:
    sparse = replace(SPARSE, num_hidden_layers=layers)
    (only,) = held(Layout(context=4, expert=2, zero_stage=2), 4, model=sparse, stack="deepspeed")
    fp32_and_flat_copy, holders = 4 + 2, 2
    assert only.step_gradients == fp32_and_flat_copy * numbers / holders


@pytest.mark.parametrize(("zero_stage", "gradient_dtype", "numbers"), [(2, "bf16", 5e8), (1, "fp32", 2 * ADAPTERS)])
def test_deepspeed_has_a_whole_bucket_for_half_gradients(zero_stage: Any, gradient_dtype: Any, numbers: float) -> None:
    adapters = Method(name="lora", rank=8, targets=("q_proj",))
    layout = Layout(zero_stage=zero_stage)
    (only,) = held(layout, 8, stack="deepspeed", method=adapters, gradient_dtype=gradient_dtype)
    assert only.gradient_buckets == 2 * numbers


def test_deepspeed_reduces_gradients_as_they_are() -> None:
    deepspeed, sharded = (held(Layout(zero_stage=3), 8, stack=stack)[0] for stack in ("deepspeed", "transformers"))
    end = TABLE + HIDDEN  # the head and its norm
    assert sharded.reduced_gradients - deepspeed.reduced_gradients == 2 * end


@pytest.mark.parametrize(("torch", "copied_lists", "adapter_lists"), [("2.0", 2, 1), ("2.1", 1, 1)])
def test_multi_tensor_update_takes_one_format_after_the_other(
    torch: str, copied_lists: int, adapter_lists: int
) -> None:
    software = Software(name="transformers", versions=Versions(torch=torch))
    (only,) = held(Layout(), 1, method=EMBEDDED, stack=software)
    assert only.update_buffers == pytest.approx(copied_lists * 2 * 2 * TABLE + adapter_lists * 4 * ADAPTERS)


def test_parts_copied_beside_adapters_are_in_the_compute_format() -> None:
    plain = Method(name="lora", rank=8, targets=("q_proj",))
    frozen, copied = (
        held(Layout(), 1, method=method, stack="transformers", recompute="full")[0] for method in (plain, EMBEDDED)
    )
    assert (copied.cast_weights, copied.late_cast_weights) == (frozen.cast_weights, frozen.late_cast_weights)
    assert copied.activations == pytest.approx(
        frozen.activations + 2 * LENGTH * HIDDEN
    )  # what the head's product reads


def test_moments_of_a_named_format_do_not_follow_copied_parts() -> None:
    (usual,) = held(Layout(), 1, method=EMBEDDED, stack="transformers")
    (narrow,) = held(Layout(), 1, method=EMBEDDED, stack="transformers", optimizer="adamw-8bit")
    assert usual.optimizer_states == pytest.approx(2 * (2 * 2 * TABLE + 4 * ADAPTERS))
    assert narrow.optimizer_states == pytest.approx(2 * (2 * TABLE + ADAPTERS))


def test_a_checkpoint_holds_copied_parts_as_they_are_held() -> None:
    asked = Question(
        model=LLAMA_3_8B,
        recipe=Recipe(sequence_length=LENGTH, method=EMBEDDED, stack="transformers"),
        layout=Layout(),
        cluster=Cluster(gpu=H100.slug, gpus=1),
        gpu=H100,
    )
    assert checkpoint_bytes(resolve(asked).workload) == pytest.approx(3 * (2 * 2 * TABLE + 4 * ADAPTERS))


@pytest.mark.parametrize(
    ("stack", "architecture", "kernel"),
    [
        ("megatron-core", "Volta", "eager"),
        ("torchtitan", "Turing", "eager"),
        ("transformers", "Volta", "flash-2"),
        ("megatron-core", "Ampere", "flash-2"),
        ("megatron-core", "Hopper", "cudnn"),
    ],
)
def test_flash_keeps_scores_where_no_fused_kernel_of_the_stack_runs(stack: Any, architecture: str, kernel: str) -> None:
    asked = Question(
        model=LLAMA_3_8B,
        recipe=Recipe(sequence_length=512, precision="fp32", stack=stack),
        layout=Layout(zero_stage=0),
        cluster=Cluster(gpu=H100.slug, gpus=1),
        gpu=replace(H100, architecture=architecture),
    )
    assert resolve(asked).workload.kernel == kernel
    is_said = any("scores are kept" in one for one in estimate(asked).assumptions)
    assert is_said == (kernel == "eager")


def saved_of(stack: Any, part: str, **recipe: Any) -> int:
    """Bytes that one operation of a layer of the sample model saves, in 512 tokens."""
    asked = Question(
        model=replace(LLAMA_3_8B, num_hidden_layers=2),
        recipe=Recipe(sequence_length=512, stack=stack, **recipe),
        layout=Layout(),
        cluster=Cluster(gpu=H100.slug, gpus=1),
        gpu=H100,
    )
    ops = resolve(asked).workload.ledger.kinds[-1]
    return sum(one.bytes for op in ops if op.name == part for one in op.saved)


@pytest.mark.parametrize(
    ("stack", "library", "before", "since"),
    [("transformers", "torch", "2.4", "2.5"), ("torchtitan", "torchtitan", "2026.1", "2026.2")],
)
def test_fused_attention_reads_grouped_heads_as_they_are_from_a_version_on(
    stack: Any, library: str, before: str, since: str
) -> None:
    old, new = (Software(name=stack, versions=Versions(**{library: version})) for version in (before, since))
    copies = 512 * 2 * 2 * (32 - 8) * 128  # 24 heads of keys and of values in two bytes
    assert saved_of(old, "attention.core") - saved_of(new, "attention.core") == copies
    assert saved_of(stack, "attention.core") == saved_of(new, "attention.core")


def test_matrices_of_4_bits_keep_their_input_before_a_version_of_bitsandbytes() -> None:
    old, new = (Software(name="transformers", versions=Versions(bitsandbytes=one)) for one in ("0.43", "0.44"))
    recipe: dict[str, Any] = {"precision": PURE, "method": Method(name="qlora")}
    kept = {part: saved_of(old, part, **recipe) - saved_of(new, part, **recipe) for part in ("mlp.norm", "mlp.down")}
    assert kept == {"mlp.norm": 512 * 2 * 4096, "mlp.down": 512 * 2 * 14336}


STREAM_BYTES, TABLE_BYTES = 2 * LENGTH * HIDDEN, 2 * TABLE


def litgpt(**choices: Any) -> Software:
    """litgpt's layers and loop."""
    return Software(name="transformers", implementation="litgpt", **choices)


@pytest.mark.parametrize(
    ("stack", "logits_bytes"),
    [
        # 32 parts of the logits, the gradient of their input, and that of the matrix.
        (Software(name="transformers", implementation="liger"), LOGITS * 2 / 32 + STREAM_BYTES + TABLE_BYTES),
        # Logits, the log-softmax of all, and an eighth of them in fp32.
        (Software(name="torchtitan", cross_entropy="chunked-outputs"), LOGITS * (2 + 4 + 4 / 8)),
        # fp32 logits and their log-softmax, and two gradients for 128 tokens.
        (litgpt(logits_until="loss"), LOGITS * 8 * (1 + 128 / LENGTH)),
        (litgpt(logits_until="backward"), LOGITS * 8 * (1 + 128 / LENGTH)),
        # Those of the micro-batch before, and the new ones in both formats.
        (litgpt(), LOGITS * (4 + 2 + 4)),
    ],
)
def test_a_loss_holds_what_its_kernel_and_its_loop_hold(stack: Software, logits_bytes: float) -> None:
    (found,) = held(Layout(), 1, precision=PURE, stack=stack)
    assert found.logits == logits_bytes


def test_results_hold_inputs_of_matrices_of_4_bits_and_their_head_is_dequantised() -> None:
    def logits_bytes(until: Any) -> float:
        stack = litgpt(logits_until=until, versions=Versions(bitsandbytes="0.42"))
        method = Method(name="qlora")
        (found,) = held(Layout(), 1, sequence_length=512, precision=PURE, stack=stack, method=method)
        return float(found.logits)

    logits, stream = 512 * VOCABULARY, 2 * 512 * HIDDEN
    # The normed inputs of attention, MLP and head, the heads' copied result and the MLP's.
    inputs = 512 * 2 * (32 * (3 * HIDDEN + 14336) + HIDDEN)
    assert logits_bytes("backward") == logits * (2 + 4) + stream + 2 * TABLE_BYTES
    assert logits_bytes("next") == logits * (2 + 4) + 2 * TABLE_BYTES + inputs


def test_gradients_of_flat_parameters_wait_whole_beside_frozen_ones() -> None:
    adapters = 32 * 8 * (4 * HIDDEN - 3 * 1024)
    early = {}
    for batch in (2, 4):
        (found,) = held(Layout(zero_stage=3), 2, global_batch=batch, precision=PURE, stack=litgpt(), method="lora")
        early[batch] = float(found.early_gradients)
    assert early == {2: 0.0, 4: 2 * (32 * LAYER + adapters) + adapters}


def test_an_update_in_the_backward_pass_never_has_all_gradients() -> None:
    def most(**choices: Any) -> StageBytes:
        stack = Software(name="torchtitan", fused_update=False, **choices)
        (found,) = held(Layout(zero_stage=0), 1, precision=PURE, stack=stack)
        return found

    usual, stepped = most(), most(step_in_backward=True)
    assert (usual.gradients, stepped.gradients) == (2 * PARAMETERS, 2 * TABLE)
    assert (usual.update_buffers, stepped.update_buffers) == (2 * PARAMETERS, 2 * TABLE)
    assert usual.layer_buffers > stepped.layer_buffers


def test_flat_copies_are_live_in_the_update_and_serve_what_the_first_one_displaced() -> None:
    """Optimizer states of the first update take the room of activations, and those of the next step that of copies."""
    (only,) = held(Layout(tensor=4, data=4), 16, global_batch=16, stack="nanotron")
    norms = 65 * HIDDEN
    copies = 2 * ((PARAMETERS - norms) / 4 + norms) * (2 + 1 / 4)
    assert only.flat_copies == copies
    assert only.at("optimizer") - only.at("idle") == copies
    first = max(only.at("loss"), only.at("backward"), only.at("reduction")) - only.optimizer_states
    assert only.cached == only.settled_cached == only.pools + first + copies - only.peak


def test_results_wait_for_the_gpu_as_far_as_the_host_is_ahead() -> None:
    all_layers = 2 * 32 * LENGTH * HIDDEN * 2
    (several,), (single,) = (held(Layout(tensor=4), 4, global_batch=batch, stack="nanotron") for batch in (2, 1))
    assert several.pools == all_layers
    assert 0.5 * all_layers < single.pools < all_layers
    (short,) = held(Layout(tensor=4), 4, global_batch=1, sequence_length=512, stack="nanotron")
    assert short.pools == 0


@pytest.mark.parametrize(("stack", "communicators"), [("megatron-core", 1), ("nanotron", 4)])
def test_every_communicator_has_its_buffers(stack: Any, communicators: int) -> None:
    recipe = Recipe(sequence_length=LENGTH, global_batch=8, stack=stack)
    cluster = Cluster(gpu=H100.slug, gpus=8)
    asked = Question(model=LLAMA_3_8B, recipe=recipe, layout=Layout(), cluster=cluster, gpu=H100)
    memory = estimate(asked).memory
    beside = memory.device_peak_bytes.value - memory.reserved_peak_bytes.value
    assert beside == pytest.approx((0.6 + communicators) * 2**30)
