"""A gated short convolution (LFM2)."""

from service.estimator.model.ledger import Op, Ops, Saved, Setting, Split
from service.estimator.model.operations import convolution_op, mixer_input_op, mixer_output_op
from service.estimator.question import LayerType, Model


def short_convolution_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Projection to two gates and an input, the input's convolution between them, and the projection back.

    Source:
        transformers modeling_lfm2.Lfm2ShortConv; LFM2, arXiv:2511.23404, section 2
    """
    hidden = model.hidden_size
    return (
        mixer_input_op(model, setting, outputs=3 * hidden),
        convolution_op(model, setting, channels=hidden),
        _gates(model, setting),
        mixer_output_op(model, setting, inputs=hidden, keeps_input=True),
    )


def _gates(model: Model, setting: Setting) -> Op:
    """The products with both gates: keeps gates and input, and the convolution's input and output."""
    return Op(
        name="mixer.gates",
        kind="elementwise",
        split=Split.TENSOR,
        saved=(Saved(setting.tensor_bytes(5 * model.hidden_size), Split.TENSOR),),
        moved_bytes=setting.tensor_bytes(6 * model.hidden_size),
    )
