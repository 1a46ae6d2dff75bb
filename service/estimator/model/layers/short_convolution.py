"""A gated short convolution (LFM2)."""

from service.estimator.model.ledger import Ops, SequenceSettings
from service.estimator.model.operations import convolution_op, elementwise_op, mixer_input_op, mixer_output_op
from service.estimator.question import LayerType, Model


def short_convolution_ops(model: Model, layer_type: LayerType, setting: SequenceSettings) -> Ops:
    """Projection to two gates and an input, the input's convolution between them, and the projection back.

    The products with the gates save both gates, the input, and the convolution's input and output.
    """
    # Source: transformers modeling_lfm2.Lfm2ShortConv; LFM2, arXiv:2511.23404, section 2
    hidden = model.hidden_size
    return (
        mixer_input_op(model, setting, outputs=3 * hidden),
        convolution_op(model, setting, channels=hidden),
        elementwise_op("mixer.gates", setting, saved=5 * hidden, moved=6 * hidden),
        mixer_output_op(model, setting, inputs=hidden, keeps_input=True),
    )
