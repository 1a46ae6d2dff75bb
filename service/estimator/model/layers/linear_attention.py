"""Linear attention: with a fixed decay (MiniMax-01), and gated delta nets (Qwen3-Next, Qwen3.5, OLMo Hybrid)."""

from service.estimator.model.ledger import Ops, SequenceSettings, Split, Weight
from service.estimator.model.operations import convolution_op, elementwise_op, mixer_input_op, mixer_output_op, scan_op
from service.estimator.question import LayerType, Model


def lightning_attention_ops(model: Model, layer_type: LayerType, setting: SequenceSettings) -> Ops:
    """Projections, linear attention, norm and gate of one layer; every query head has keys and values of its own."""
    # Source: MiniMax-01, arXiv:2501.08313, section 2.2; transformers modeling_minimax.MiniMaxLightningAttention
    width = model.num_attention_heads * model.head_width
    # 5 FLOP a state: its decay, the product of key and value, and the product with the query. It saves queries, keys
    # and values before and after their activation.
    recurrence = scan_op(
        "mixer.linear_attention",
        flop=5 * setting.tokens * width * model.head_width,
        saved=setting.tensor_bytes(6 * width),
        moved=setting.tensor_bytes(4 * width),
    )
    # One norm over all heads together, times the gate; it saves its input, its output and the gate.
    scale = Weight(1, width, Split.TENSOR, role="norm")
    return (
        mixer_input_op(model, setting, outputs=4 * width),
        recurrence,
        elementwise_op("mixer.gated_norm", setting, scale, saved=3 * width, moved=4 * width),
        mixer_output_op(model, setting, inputs=width, keeps_input=True),
    )


CHUNK_TOKENS = 64
"""Tokens of one chunk, whose keys' products are kept. Source: fla-org/flash-linear-attention ops/gated_delta_rule."""


def gated_delta_net_ops(model: Model, layer_type: LayerType, setting: SequenceSettings) -> Ops:
    """Projections, convolution, delta rule and gated norm of one layer."""
    # Source: Yang et al. 2024, arXiv:2412.06464, sections 3.1 and 3.4; fla-org/flash-linear-attention (what is saved)
    key_width, value_width = model.linear_key_head_dim or 0, model.linear_value_head_dim or 0
    heads, tokens, element = model.linear_num_value_heads or 0, setting.tokens, setting.element_bytes
    keys, values = (model.linear_num_key_heads or 0) * key_width, heads * value_width
    # 8 FLOP a state: what it holds for a key, its correction, its decay and a query's answer. It saves the
    # convolution's input and output, both gates in fp32, and each chunk's products of keys with keys.
    mixed, gates = setting.tensor_bytes(2 * keys + values), tokens * heads * (2 * 4 + element * CHUNK_TOKENS)
    delta_rule = scan_op(
        "mixer.delta_rule",
        Weight(1, 2 * heads, Split.TENSOR, role="vector"),
        flop=8 * tokens * values * key_width,
        saved=2 * mixed + gates,
        moved=mixed + gates + setting.tensor_bytes(values),
    )
    # A norm of each head, its weights shared by all of them, times the gate: it saves both.
    scale = Weight(1, value_width, role="norm")
    return (
        mixer_input_op(model, setting, outputs=2 * (keys + values + heads)),
        convolution_op(model, setting, channels=2 * keys + values),
        delta_rule,
        elementwise_op("mixer.gated_norm", setting, scale, saved=2 * values, moved=3 * values),
        mixer_output_op(model, setting, inputs=values, keeps_input=True),
    )
