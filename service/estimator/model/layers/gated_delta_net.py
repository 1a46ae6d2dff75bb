"""A gated delta net (Qwen3-Next, Qwen3.5, OLMo Hybrid)."""

from service.estimator.model.ledger import Op, Ops, Saved, Setting, Split, Weight
from service.estimator.model.operations import convolution_op, mixer_input_op, mixer_output_op
from service.estimator.question import LayerType, Model

CHUNK_TOKENS = 64
"""Tokens of one chunk, whose keys' products are kept. Source: fla-org/flash-linear-attention ops/gated_delta_rule."""


def gated_delta_net_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Projections, convolution, delta rule and gated norm of one layer.

    Source:
        Yang et al. 2024, arXiv:2412.06464, sections 3.1 and 3.4; fla-org/flash-linear-attention (what is saved)
    """
    keys, values = _widths(model)
    heads = model.linear_num_value_heads or 0
    return (
        mixer_input_op(model, setting, outputs=2 * (keys + values + heads)),
        convolution_op(model, setting, channels=2 * keys + values),
        _delta_rule(model, setting),
        _gated_norm(model, setting),
        mixer_output_op(model, setting, inputs=values, keeps_input=True),
    )


def _widths(model: Model) -> tuple[int, int]:
    """Numbers of all queries (as many of all keys), and of all values, of one token."""
    keys = (model.linear_num_key_heads or 0) * (model.linear_key_head_dim or 0)
    return keys, (model.linear_num_value_heads or 0) * (model.linear_value_head_dim or 0)


def _delta_rule(model: Model, setting: Setting) -> Op:
    """The recurrence: what the state holds for a key, its correction, its decay and a query's answer, 8 FLOP a state.

    Keeps the convolution's input and output, both gates in fp32, and each chunk's products of keys with keys.
    """
    keys, values = _widths(model)
    heads, tokens, element = model.linear_num_value_heads or 0, setting.tokens, setting.element_bytes
    flop = 8 * tokens * values * (model.linear_key_head_dim or 0)
    mixed = element * tokens * (2 * keys + values)
    gates = tokens * heads * (2 * 4 + element * CHUNK_TOKENS)
    return Op(
        name="mixer.delta_rule",
        kind="attention",
        split=Split.TENSOR,
        weights=(Weight(1, 2 * heads, Split.TENSOR, role="vector"),),
        flop=flop,
        kernel_rerun_flop=flop,
        saved=(Saved(2 * mixed + gates, Split.TENSOR),),
        moved_bytes=mixed + gates + element * tokens * values,
    )


def _gated_norm(model: Model, setting: Setting) -> Op:
    """A norm of each head, its weights shared by all of them, times the gate: keeps both."""
    _, values = _widths(model)
    return Op(
        name="mixer.gated_norm",
        kind="elementwise",
        split=Split.TENSOR,
        weights=(Weight(1, model.linear_value_head_dim or 0, role="norm"),),
        saved=(Saved(setting.tensor_bytes(2 * values), Split.TENSOR),),
        moved_bytes=setting.tensor_bytes(3 * values),
    )
