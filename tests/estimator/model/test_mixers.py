"""Every way to mix tokens: what it counts, what it grows with, what it shares."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from service.errors import Refused
from service.estimator import Layout, Model, Recipe, count_parameters, estimate
from service.estimator.model.build import MIXER_FIELDS, MIXERS
from service.estimator.model.counts import forward_flop
from service.estimator.question import LayerType
from tests.ask import question
from tests.estimator.small_models import ledger_of

BASE: dict[str, Any] = {
    "vocab_size": 32000, "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 0,
    "mlp_layer_types": ("none",),
}  # fmt: skip
FIELDS: dict[str, Any] = {
    "conv_kernel": 4, "mamba_d_ssm": 2048, "mamba_d_state": 128, "mamba_dt_rank": 64, "mamba_n_heads": 32,
    "mamba_n_groups": 8, "linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 64,
    "linear_value_head_dim": 64, "lru_width": 1024, "num_mem_blocks": 1, "intermediate_size": 4096,
    "num_attention_heads": 16,
}  # fmt: skip


def model_of(mixer: LayerType, **changes: Any) -> Model:
    """A model whose layers all mix tokens one way, and do nothing else."""
    needed = {name: FIELDS[name] for name in MIXERS[mixer].required_fields}
    windows = {"sliding_attention": {"sliding_window": 256}, "chunked_attention": {"attention_chunk_size": 256}}
    return Model(**{**BASE, **needed, **windows.get(mixer, {}), "layer_types": (mixer,), **changes})


def layer_flop(mixer: LayerType, tokens: int, **changes: Any) -> int:
    return forward_flop(ledger_of(model_of(mixer, **changes), tokens).kinds[0])


MIXING = [mixer for mixer in get_args(LayerType) if mixer != "none"]
CARRYING = [mixer for mixer in MIXING if MIXERS[mixer].carries_state and not MIXERS[mixer].attends]


def test_every_name_has_a_row_and_every_row_names_fields_of_the_model() -> None:
    assert list(MIXERS) == list(get_args(LayerType))
    for mixer in MIXERS.values():
        assert {*mixer.required_fields, *mixer.optional_fields, *mixer.tensor_split_fields} <= set(
            Model.__dataclass_fields__
        )
    assert set(FIELDS) - {"num_attention_heads", "intermediate_size"} <= set(MIXER_FIELDS)


@pytest.mark.parametrize("mixer", CARRYING)
def test_work_of_a_state_grows_with_the_sequence_and_no_faster(mixer: LayerType) -> None:
    assert layer_flop(mixer, 8192) == 8 * layer_flop(mixer, 1024)


def test_work_of_attention_grows_faster() -> None:
    assert layer_flop("full_attention", 8192) > 8 * layer_flop("full_attention", 1024)
    assert layer_flop("attention_and_mamba2", 8192) > 8 * layer_flop("attention_and_mamba2", 1024)


def test_parallel_branches_share_one_norm() -> None:
    norms = 1024
    both, attention, state = (
        count_parameters(model_of(mixer)).non_embedding - norms
        for mixer in ("attention_and_mamba2", "full_attention", "mamba2")
    )
    assert both == attention + state - 4 * norms


def test_mamba2_counts_what_megatron_counts_and_the_convolution() -> None:
    """Megatron-LM training.py, mamba_layer_flops: 2 h (2 d + 2 G N + H) + 7 d N + 2 d h for each token."""
    h, d, n, heads, groups, taps = 1024, 2048, 128, 32, 8, 4
    counted = 2 * h * (2 * d + 2 * groups * n + heads) + 7 * d * n + 2 * d * h
    convolution = 2 * taps * (d + 2 * groups * n)
    assert layer_flop("mamba2", 512) == 512 * (counted + convolution)
    assert convolution < 0.005 * counted


def test_delta_net_counts_what_megatron_counts() -> None:
    """Megatron-LM training.py, gated_delta_net: twice h (2 K + 2 V + 2 H) + k (2 K + V) + 4 H d^2 + h V a token."""
    h, keys, values, heads, width, taps = 1024, 8 * 64, 16 * 64, 16, 64, 4
    products = h * (2 * keys + 2 * values + 2 * heads) + taps * (2 * keys + values) + 4 * heads * width**2 + h * values
    assert layer_flop("gated_delta_net", 512) == 512 * 2 * products


def test_a_shared_block_is_held_once_and_runs_in_every_layer() -> None:
    shared = model_of("shared_attention_and_mamba2", head_dim=128)
    apart = replace(shared, num_mem_blocks=4)
    first, *_ = ledger_of(apart, 512).kinds
    block = sum(w.parameters for op in first if op.name.startswith("block.") for w in op.weights)
    assert count_parameters(apart).total - count_parameters(shared).total == 3 * block
    flop = [[times * forward_flop(ops) for times, ops in ledger_of(m, 512).layer_groups()] for m in (shared, apart)]
    assert sum(flop[0]) == sum(flop[1])


@pytest.mark.parametrize("mixer", MIXING)
def test_a_model_of_one_mixer_is_estimated_by_the_software_that_has_it(mixer: LayerType) -> None:
    recipe = Recipe(sequence_length=4096, global_batch=64, training_tokens=1e11)
    found = estimate(question(model_of(mixer), recipe, Layout(), gpus=8))
    stack = found.resolved.recipe.stack
    own = not MIXERS[mixer].carries_state or mixer in {"mamba2", "gated_delta_net"}
    assert stack == ("megatron-core" if own else "transformers")
    assert found.step.step_seconds.value > 0
    assert found.memory.allocated_peak_bytes.value > 0
    if not own:
        named = question(model_of(mixer), replace(recipe, stack="megatron-core"), Layout(), gpus=8)
        with pytest.raises(Refused, match=f"no {mixer} layers"):
            estimate(named)


@pytest.mark.parametrize("mixer", CARRYING)
def test_tensor_ranks_share_the_heads_of_a_mixer(mixer: LayerType) -> None:
    """Two ranks hold each half of the large matrices: together little more than one alone.

    In one format throughout, so that no cast of an input that every rank keeps whole stands beside them.
    """
    recipe = Recipe(sequence_length=4096, global_batch=64, precision="bf16-pure")
    whole, split = (
        estimate(question(model_of(mixer), recipe, Layout(tensor=tensor, data=4), gpus=4 * tensor)).memory.stages[0]
        for tensor in (1, 2)
    )
    kept = [sum(line.bytes for line in stage.lines if line.kind == "activations") for stage in (whole, split)]
    assert kept[1] < 0.75 * kept[0]


KEPT_BYTES: dict[LayerType, int] = {
    "mamba": 2 * (3 * 2048 + 64 + 2 * 128) + 2 * 128 * 2048 * 4 // 2048,
    "mamba2": 2 * (3 * 2048 + 2 * 8 * 128 + 32),
    "gated_delta_net": 2 * 2 * (2 * 512 + 1024) + 16 * (2 * 4 + 2 * 64) + 2 * 2 * 1024 + 2 * 1024,
    "lightning_attention": 2 * (6 + 3 + 1) * 1024,
    "rg_lru": (2 + (4 * 2 + 4) + 2) * 1024,
    "short_convolution": 2 * (5 + 1) * 1024,
}
"""What one layer keeps of one token beside its norm's input and output, tensor by tensor.

mamba: both halves of the input projection and the scan's result, step latent, B and C, fp32 states once in 2,048
tokens; mamba2: all of the input projection and the scan's result; gated_delta_net: queries, keys and values before and
after the convolution, fp32 gates and products of 64 keys a head, the norm's input and gate, and its result;
lightning_attention: queries, keys and values before and after their activation, the norm's input and output, the gate,
and their product; rg_lru: the convolution's result, both branches and both gates, fp32 states, and the product;
short_convolution: gates and input, the convolution's input and result, and the product.
"""


@pytest.mark.parametrize("mixer", KEPT_BYTES)
def test_a_layer_keeps_what_its_backward_pass_reads(mixer: LayerType) -> None:
    (ops,) = ledger_of(model_of(mixer), 2048).kinds
    kept = sum(saved.bytes for op in ops if op.name.startswith("mixer.") for saved in op.saved)
    assert kept == 2048 * KEPT_BYTES[mixer]


def test_a_shared_block_keeps_the_inputs_of_its_products() -> None:
    model = model_of("shared_attention_and_mamba2", head_dim=128, adapter_rank=64)
    ops = {op.name: op for op in ledger_of(model, 512).kinds[0]}
    kept = {name: sum(saved.bytes for saved in op.saved) // (2 * 512) for name, op in ops.items()}
    assert kept["block_projection"] == 1024
    assert kept["mlp.adapter"] == 64
    assert kept["block.attention.norm"] == 2 * 2 * 1024
    assert kept["block.mlp.down"] == 4096
