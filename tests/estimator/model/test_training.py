"""Frozen weights cost a forward pass, the way back to what is trained, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from service.estimator import Estimate, Layout, Model, Recipe
from service.estimator.question import MatrixName, Method, MethodName, ZeroStage
from service.estimator.samples import LLAMA_3_8B
from tests.ask import ask, bytes_of
from tests.estimator.small_models import DENSE, SPARSE

TOKENS = 8192
PLAIN = Recipe(sequence_length=TOKENS)
FULL_AND_LORA: tuple[MethodName, ...] = ("full", "lora")
EVERY: tuple[MatrixName, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LORA = Method(name="lora", rank=16, targets=EVERY)
LAYERS, HIDDEN, WIDTH, KEYS = 32, 4096, 14336, 1024
ADAPTERS = LAYERS * 16 * (2 * 2 * HIDDEN + 2 * (HIDDEN + KEYS) + 3 * (HIDDEN + WIDTH))


def llama(method: Method | MethodName, layout: Layout | None = None, *, gpus: int = 1, **recipe: Any) -> Estimate:
    """The answer for Llama 3.1 8B trained by a method."""
    return ask(LLAMA_3_8B, replace(PLAIN, method=method, **recipe), layout, gpus=gpus)


def frozen(*parts: Any, layers: int = 0) -> Method:
    """Full training with parts and first layers frozen."""
    return Method(name="full", frozen=parts, frozen_layers=layers)


def test_adapters_are_two_thin_matrices_beside_each_target() -> None:
    counts = llama(LORA).parameters
    assert counts.adapters == counts.trained == ADAPTERS
    assert counts.total == 8_030_261_248
    assert llama("lora").parameters.adapters == LAYERS * 8 * (2 * HIDDEN + HIDDEN + KEYS)


def test_joint_adapters_read_their_input_once() -> None:
    """c_attn of Qwen-7B and its other products: 143,130,624 trained parameters (huggingface/peft, QwenLM/Qwen)."""
    model = replace(LLAMA_3_8B, num_key_value_heads=32, intermediate_size=11_008)
    fused = Method(name="lora", rank=64, targets=EVERY, joint=("q_proj", "k_proj", "v_proj"))
    answers = {method: ask(model, replace(PLAIN, method=method)) for method in (fused, replace(fused, joint=()))}
    joint, apart = answers.values()
    assert joint.parameters.adapters == 143_130_624 == apart.parameters.adapters - 32 * 2 * 64 * 4096
    spared = 6 * 2 * 32 * 64 * 4096 * PLAIN.sequence_length  # forward, and both gradients
    assert apart.flop.per_step_flop - joint.flop.per_step_flop == pytest.approx(spared, rel=0.1)


def test_lora_costs_four_for_a_frozen_and_six_for_a_trained_parameter() -> None:
    """But for the first layer, whose input needs no gradient, and core attention, which is trained as ever."""
    whole, adapted = llama("full").flop, llama(LORA).flop
    matrices = whole.conventions.six_n / 6 - 65 * HIDDEN - 128256 * HIDDEN
    first = HIDDEN * (HIDDEN + 2 * KEYS) + 16 * 3 * HIDDEN
    attention = whole.per_token_flop - 6 * matrices
    assert adapted.per_token_flop == 4 * matrices + 6 * ADAPTERS - 2 * first + attention


def test_nothing_flows_back_through_frozen_first_layers() -> None:
    some, all_but_head = llama(frozen("embedding", layers=16)).flop, llama(frozen("embedding", layers=32)).flop
    head = 2 * TOKENS * HIDDEN * 128256
    assert all_but_head.backward_per_step_flop == 2 * head
    below = 2 * TOKENS * HIDDEN * (HIDDEN + 2 * KEYS)
    layer = (all_but_head.forward_per_step_flop - head) // LAYERS
    assert some.backward_per_step_flop == 2 * head + 16 * 2 * layer
    assert llama(frozen(layers=16)).flop.backward_per_step_flop > some.backward_per_step_flop + 16 * layer - below


def test_a_frozen_embedding_is_no_product_and_spares_nothing_above_trained_norms() -> None:
    assert llama(frozen("embedding")).flop == llama("full").flop


def test_only_what_is_trained_has_states() -> None:
    answer = llama(LORA)
    assert bytes_of(answer, "frozen_weights") == 2 * 8_030_261_248
    for kind, each in (("weights", 2), ("gradients", 4), ("master_weights", 4), ("optimizer_states", 8)):
        assert bytes_of(answer, kind) == each * ADAPTERS
    half = llama(frozen("embedding", "head", layers=16))
    assert bytes_of(half, "optimizer_states") == 8 * half.parameters.trained


def test_states_of_trained_parameters_are_sharded_and_frozen_weights_with_zero_3_only() -> None:
    stages: tuple[tuple[ZeroStage, int], ...] = ((0, 1), (1, 8), (3, 8))
    alone, one, three = (llama(LORA, Layout(zero_stage=stage), gpus=gpus) for stage, gpus in stages)
    assert 8 * bytes_of(one, "optimizer_states") == bytes_of(alone, "optimizer_states")
    assert bytes_of(one, "frozen_weights") == bytes_of(alone, "frozen_weights")
    assert 8 * bytes_of(three, "frozen_weights") == bytes_of(alone, "frozen_weights")


def test_stacks_that_cast_keep_frozen_weights_in_the_compute_format() -> None:
    answer = llama("lora", stack="transformers")
    assert bytes_of(answer, "frozen_weights") == 2 * 8_030_261_248
    assert bytes_of(answer, "weights") == 4 * answer.parameters.trained
    assert bytes_of(answer, "gathered_weights") == 2 * answer.parameters.trained


def kept_by_second_layer(method: Method | MethodName) -> float:
    """Bytes that a layer keeps which has something trained before it."""
    two, one = (
        bytes_of(ask(replace(LLAMA_3_8B, num_hidden_layers=layers), replace(PLAIN, method=method)), "activations")
        for layers in (2, 1)
    )
    return two - one


def test_the_input_of_a_frozen_product_is_kept_for_its_adapter_only() -> None:
    kept = {name: kept_by_second_layer(Method(name="lora", rank=1, targets=(name,))) for name in EVERY}
    each = 2 * TOKENS
    assert kept["down_proj"] - kept["o_proj"] == each * WIDTH
    assert kept["q_proj"] - kept["o_proj"] == kept["up_proj"] - kept["o_proj"] == each * HIDDEN
    assert kept_by_second_layer(LORA) == kept_by_second_layer("full") + 7 * 16 * each


def test_layers_before_the_first_trained_one_keep_and_repeat_nothing() -> None:
    for recompute in ("none", "full"):
        late = llama(frozen("embedding", layers=24), recompute=recompute)
        whole = llama("full", recompute=recompute)
        ends = 2 * 2 * TOKENS * HIDDEN
        share = (bytes_of(late, "activations") - ends) / (bytes_of(whole, "activations") - ends)
        assert share == pytest.approx(8 / 32, rel=1e-9)
        assert late.flop.recompute_per_step_flop == whole.flop.recompute_per_step_flop * 8 // 32


def test_only_trained_gradients_are_sent_and_updated() -> None:
    whole, adapted = (llama(Method(name=name), Layout(zero_stage=1), gpus=64) for name in FULL_AND_LORA)
    parts = [{part.kind: part.seconds for part in answer.step.parts} for answer in (whole, adapted)]
    assert parts[1]["exposed_data"] < parts[0]["exposed_data"] / 100
    share = adapted.parameters.trained / whole.parameters.trained
    assert parts[1]["optimizer"] == pytest.approx(share * parts[0]["optimizer"], rel=1e-9)
    assert parts[1]["gemm"] < 0.75 * parts[0]["gemm"]


@pytest.mark.parametrize("model", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_every_adapter_of_every_expert_is_counted(model: Model) -> None:
    answer = ask(model, replace(PLAIN, method=Method(name="lora", rank=2, targets=("down_proj",))))
    dense = sum(1 for layer in range(8) if not model.num_experts or layer < model.first_k_dense_replace)
    inside = model.num_experts * (model.expert_width + 1024) + model.shared_expert_intermediate_size + 1024
    assert answer.parameters.adapters == 2 * (dense * (4096 + 1024) + (8 - dense) * inside)


def test_parts_that_are_frozen_together_leave_the_rest() -> None:
    parts = ("embedding", "norms", "attention", "mlp", "experts", "router", "head")
    counts = [ask(SPARSE, replace(PLAIN, method=frozen(part))).parameters for part in parts]
    assert sum(one.total - one.trained for one in counts) == counts[0].total
