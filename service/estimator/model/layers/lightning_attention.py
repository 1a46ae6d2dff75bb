"""Linear attention with a fixed decay (Lightning Attention: MiniMax-01)."""

from service.estimator.model.ledger import Ops, Setting, Split, Weight
from service.estimator.model.operations import elementwise_op, mixer_input_op, mixer_output_op, scan_op
from service.estimator.question import LayerType, Model


def lightning_attention_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
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
