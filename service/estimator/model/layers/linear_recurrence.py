"""A gated linear recurrence without matrix state (RG-LRU: Griffin, RecurrentGemma)."""

from service.estimator.model.ledger import Op, Ops, Saved, SequenceSettings, Split, Weight
from service.estimator.model.operations import bias_of, convolution_op, mixer_input_op, mixer_output_op, product_op
from service.estimator.question import LayerType, Model


def linear_recurrence_ops(model: Model, layer_type: LayerType, setting: SequenceSettings) -> Ops:
    """Projections, convolution, gates and recurrence of one layer.

    The input gate and the recurrence gate each multiply the channels of every head by a square matrix.
    """
    # Source: De et al. 2024, arXiv:2402.19427, sections 2.2 to 2.4; transformers modeling_recurrent_gemma
    width, heads = model.lru_width or 0, max(1, model.num_attention_heads)
    gates = product_op(
        "mixer.gates",
        setting,
        Weight(width // heads, width // heads, Split.TENSOR, 2 * heads),
        *bias_of(2 * width, Split.TENSOR, given=True),
        moved=3 * width,
        saved=(Saved(setting.tensor_bytes(width), Split.TENSOR),),
    )
    # Its few FLOP are not counted, as those of norms are not; it saves both branches, both gates and states in fp32.
    recurrence = Op(
        name="mixer.recurrence",
        kind="elementwise",
        split=Split.TENSOR,
        weights=(Weight(1, width, Split.TENSOR, role="vector"),),
        saved=(Saved((4 * setting.element_bytes + 4) * setting.tokens * width, Split.TENSOR),),
        moved_bytes=(5 * setting.element_bytes + 4) * setting.tokens * width,
    )
    return (
        mixer_input_op(model, setting, outputs=2 * width),
        convolution_op(model, setting, channels=width),
        gates,
        recurrence,
        mixer_output_op(model, setting, inputs=width, keeps_input=True),
    )
