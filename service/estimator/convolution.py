"""What does the short causal convolution do that stands in front of a recurrence, or in its place?"""

from service.estimator.ledger import Op, Split, Weight
from service.estimator.model import Model
from service.estimator.setting import Setting


def convolution_op(model: Model, setting: Setting, *, channels: int) -> Op:
    """A depthwise convolution over the last k tokens of each channel; what it keeps is its neighbours' to say.

    Args:
        model: the model; its conv_kernel is k
        setting: how operations are carried out
        channels: channels, each with its own taps [1]

    Returns:
        the operation

    Source:
        Gu and Dao 2023, arXiv:2312.00752, section 3.4 and figure 3
    """
    taps = model.conv_kernel or 0
    bias = (Weight(1, channels, Split.TENSOR, role="vector"),) if model.conv_bias else ()
    return Op(
        name="mixer.convolution",
        kind="elementwise",
        split=Split.TENSOR,
        weights=(Weight(1, channels * taps, Split.TENSOR, role="vector"), *bias),
        flop=2 * setting.tokens * channels * taps,
        moved_bytes=2 * setting.element_bytes * setting.tokens * channels,
    )
