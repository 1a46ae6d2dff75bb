"""Which layers does a Megatron hybrid pattern name? M a state space, * attention, - an MLP, E experts, | next stage."""

from typing import Any

from service.calibration.tables import NotExpressible
from service.workflows.accuracy.options import whole_of

KINDS = {
    "M": ("mamba2", "none"),
    "*": ("full_attention", "none"),
    "-": ("none", "dense"),
    "E": ("none", "sparse"),
}
"""What each letter mixes tokens by, and its MLP."""

HEAD_WIDTH, STATE_WIDTH, GROUPS, TAPS = 64, 128, 8, 4
"""Megatron-LM's defaults of mamba-head-dim, mamba-state-dim and mamba-num-groups, and the taps of its convolution."""


def hybrid_fields(pattern: str, hidden: int, flags: dict[str, Any]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The fields of a hybrid model, and the layers of each of its stages.

    Args:
        pattern: one letter a layer, stages parted by |
        hidden: width of the residual stream
        flags: what the run was told, for the sizes of the state space

    Returns:
        fields of Model; layers of each stage, one number where the pattern names no stages

    Raises:
        NotExpressible: a letter is unknown, or the pattern has layers of multi-token-prediction depths

    >>> fields, stages = hybrid_fields("M-*-|M-M-", 256, {})
    >>> fields["layer_types"][:3], fields["mamba_n_heads"], stages
    (['mamba2', 'none', 'full_attention'], 8, (4, 4))
    """
    if "/" in pattern:
        raise NotExpressible("flag hybrid-layer-pattern: depths with layers of their own")
    stages = pattern.split("|")
    letters = "".join(stages)
    if not letters or set(letters) - KINDS.keys():
        raise NotExpressible("flag hybrid-layer-pattern: not understood")
    width = whole_of(flags, "mamba-head-dim", HEAD_WIDTH)
    heads = whole_of(flags, "mamba-num-heads", 2 * hidden // width)
    fields = {
        "num_hidden_layers": len(letters),
        "layer_types": [KINDS[letter][0] for letter in letters],
        "mlp_layer_types": [KINDS[letter][1] for letter in letters],
        "mamba_d_ssm": heads * width,
        "mamba_n_heads": heads,
        "mamba_d_state": whole_of(flags, "mamba-state-dim", STATE_WIDTH),
        "mamba_n_groups": whole_of(flags, "mamba-num-groups", GROUPS),
        "conv_kernel": TAPS,
        "conv_bias": True,
        "mixer_norm": True,
    }
    return fields, tuple(map(len, stages))
