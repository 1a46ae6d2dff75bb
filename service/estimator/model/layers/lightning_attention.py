"""Linear attention with a fixed decay (Lightning Attention: MiniMax-01)."""

from service.estimator.model.ledger import Op, Ops, Saved, Setting, Split, Weight
from service.estimator.model.operations import mixer_input_op, mixer_output_op
from service.estimator.question import LayerType, Model


def lightning_attention_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Projections, linear attention, norm and gate of one layer; every query head has keys and values of its own.

    Source:
        MiniMax-01, arXiv:2501.08313, section 2.2; transformers modeling_minimax.MiniMaxLightningAttention
    """
    width = model.num_attention_heads * model.head_width
    return (
        mixer_input_op(model, setting, outputs=4 * width),
        _recurrence(model, setting),
        _gated_norm(model, setting),
        mixer_output_op(model, setting, inputs=width, keeps_input=True),
    )


def _recurrence(model: Model, setting: Setting) -> Op:
    """Recurrence: 5 FLOP a state for its decay, the product of key and value, and the product with the query.

    Saves queries, keys and values before and after their activation.
    """
    width = model.num_attention_heads * model.head_width
    flop = 5 * setting.tokens * width * model.head_width
    return Op(
        name="mixer.linear_attention",
        kind="attention",
        split=Split.TENSOR,
        flop=flop,
        kernel_rerun_flop=flop,
        saved=(Saved(setting.tensor_bytes(6 * width), Split.TENSOR),),
        moved_bytes=setting.tensor_bytes(4 * width),
    )


def _gated_norm(model: Model, setting: Setting) -> Op:
    """Norm over all heads together, times the gate; saves its input, its output and the gate."""
    width = model.num_attention_heads * model.head_width
    return Op(
        name="mixer.gated_norm",
        kind="elementwise",
        split=Split.TENSOR,
        weights=(Weight(1, width, Split.TENSOR, role="norm"),),
        saved=(Saved(setting.tensor_bytes(3 * width), Split.TENSOR),),
        moved_bytes=setting.tensor_bytes(4 * width),
    )
