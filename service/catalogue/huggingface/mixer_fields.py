"""How does a config describe what mixes tokens in its layers, where that is more than attention?

Each builder reads the keys of its model type and returns Model fields.
"""

from collections.abc import Callable, Mapping
from typing import Annotated

from annotated_types import Interval

from service.catalogue.huggingface.config import MOST, Config
from service.catalogue.huggingface.layer_patterns import Builder, Fields

AUTO = Annotated[int, Interval(ge=1, le=MOST)] | None
"""A whole number, or null for the type's own rule; the word auto means null."""
FACTOR = Annotated[float, Interval(ge=1e-3, le=1e3)]

MAMBA_KEYS: Mapping[str, str] = {
    "state": "state_size", "rank": "time_step_rank", "taps": "conv_kernel", "conv_bias": "use_conv_bias",
    "bias": "use_bias",
}  # fmt: skip
"""Where Mamba says what its mixer is."""
JAMBA_KEYS: Mapping[str, str] = {
    "state": "mamba_d_state", "rank": "mamba_dt_rank", "taps": "mamba_d_conv", "conv_bias": "mamba_conv_bias",
    "bias": "mamba_proj_bias",
}  # fmt: skip
"""Where Jamba says it."""
MAMBA2_KEYS: Mapping[str, str] = {
    "state": "mamba_d_state", "heads": "mamba_n_heads", "width": "mamba_d_head", "groups": "mamba_n_groups",
    "taps": "mamba_d_conv", "conv_bias": "mamba_conv_bias", "bias": "mamba_proj_bias",
}  # fmt: skip
"""Where Bamba and its kin say what a state-space mixer is."""


def mamba(keys: Mapping[str, str], inner: Callable[[Config], int]) -> Builder:
    """A selective state space; the rank of its step is a sixteenth of hidden_size unless said.

    Args:
        keys: where its numbers stand, by the names of MAMBA_KEYS
        inner: reader of its inner width

    Returns:
        builder of its fields
    """
    return lambda config: {
        "mamba_d_ssm": inner(config),
        "mamba_d_state": config.whole(keys["state"], least=1),
        "mamba_dt_rank": _automatic(config, keys["rank"]) or -(-config.needed("hidden_size") // 16),
        "conv_kernel": config.whole(keys["taps"], least=1),
        "conv_bias": config.flag(keys["conv_bias"]),
        "mixer_bias": config.flag(keys["bias"]),
    }


def said_or(key: str, otherwise: Callable[[Config], int]) -> Callable[[Config], int]:
    """A width that a key may say.

    Args:
        key: where it may stand
        otherwise: reader of it where it does not

    Returns:
        reader of the width
    """

    def read(config: Config) -> int:
        width, said = otherwise(config), config.whole_or_none(key, least=1)
        return width if said is None else said

    return read


def expanded(key: str) -> Callable[[Config], int]:
    """An inner width so many times hidden_size.

    Args:
        key: where it says how many times

    Returns:
        reader of the width
    """
    return lambda config: int(config.read(key, FACTOR) * config.needed("hidden_size"))


def head_by_head(heads: str, width: str) -> Callable[[Config], int]:
    """An inner width that follows from its heads.

    Args:
        heads: where their number stands
        width: where the width of one stands

    Returns:
        reader of the width
    """
    return lambda config: config.whole(heads, least=1) * config.whole(width, least=1)


def mamba2(keys: Mapping[str, str], inner: Callable[[Config], int], *, norm: bool = True) -> Builder:
    """A state space with one decay a head.

    Args:
        keys: where its numbers stand, by the names of MAMBA2_KEYS
        inner: reader of its inner width
        norm: whether it has a norm on the gated output

    Returns:
        builder of its fields
    """

    def build(config: Config) -> Fields:
        heads, wide = config.whole(keys["heads"], least=1), inner(config)
        width = _automatic(config, keys["width"]) if "width" in keys else None
        if width is not None and width * heads != wide:
            wrong = f"x {keys['heads']} is {width * heads}, and the mixer is {wide} wide"
            raise config.problem(keys["width"], "contradiction", wrong, "leave it out, or make them agree")
        return {
            "mamba_d_ssm": wide,
            "mamba_d_state": config.whole(keys["state"], least=1),
            "mamba_n_heads": heads,
            "mamba_n_groups": config.whole(keys["groups"], least=1),
            "conv_kernel": config.whole(keys["taps"], least=1),
            "conv_bias": config.flag(keys["conv_bias"]),
            "mixer_bias": config.flag(keys["bias"]),
            "mixer_norm": norm,
        }

    return build


def falcon_h1_mixer(config: Config) -> Fields:
    """Falcon-H1's state space: mamba_d_ssm wide where that is given, its norm and biases by switches.

    Args:
        config: the config

    Returns:
        its fields
    """
    inner = said_or("mamba_d_ssm", expanded("mamba_expand"))
    fields = mamba2(MAMBA2_KEYS, inner, norm=config.flag("mamba_rms_norm"))(config)
    if config.flag("projectors_bias") != fields["mixer_bias"]:
        wrong = "differs from mamba_proj_bias, and no layer kind has a bias on one of both projections"
        raise config.problem("projectors_bias", "unsupported_value", wrong, "only both or none can be estimated")
    return fields


def delta_net(config: Config) -> Fields:
    """The gated delta net of Qwen3-Next and OLMo Hybrid; heads and widths may follow from attention's.

    Args:
        config: the config

    Returns:
        its fields
    """
    heads = config.whole("num_attention_heads", least=1)
    key_heads = config.whole_or_none("linear_num_key_heads", least=1) or heads
    key_width = config.whole_or_none("linear_key_head_dim", least=1) or 3 * config.needed("hidden_size") // (
        4 * key_heads
    )
    return {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": config.whole_or_none("linear_num_value_heads", least=1) or heads,
        "linear_key_head_dim": key_width,
        "linear_value_head_dim": config.whole_or_none("linear_value_head_dim", least=1) or 2 * key_width,
        "conv_kernel": config.whole("linear_conv_kernel_dim", least=1),
    }


def short_convolution(config: Config) -> Fields:
    """LFM2's convolution, with biases on its projections too where it has one.

    Args:
        config: the config

    Returns:
        its fields
    """
    biased = config.flag("conv_bias")
    return {"conv_kernel": config.whole("conv_L_cache", least=1), "conv_bias": biased, "mixer_bias": biased}


def lfm2_width(config: Config) -> Fields:
    """LFM2's MLP width: two thirds of what the key says, rounded up, unless that is switched off.

    Args:
        config: the config

    Returns:
        intermediate_size
    """
    width = config.whole_or_none("block_ff_dim", least=2) or config.whole("intermediate_size", least=2)
    config.understood.add("intermediate_size")
    multiple, factor = config.whole("block_multiple_of", least=1), config.read("block_ffn_dim_multiplier", FACTOR)
    if config.flag("block_auto_adjust_ff_dim"):
        width = -(-int(factor * (2 * width // 3)) // multiple) * multiple
    return {"intermediate_size": width}


def zamba2_block(config: Config) -> Fields:
    """Zamba2's shared blocks: attention twice as wide as the residual stream, an MLP four times unless said.

    Args:
        config: the config

    Returns:
        their fields
    """
    hidden, heads = config.needed("hidden_size"), config.whole("num_attention_heads", least=1)
    return {
        "head_dim": 2 * hidden // heads,
        "intermediate_size": config.whole_or_none("intermediate_size", least=1) or 4 * hidden,
        "shared_attention_adapter": config.flag("use_shared_attention_adapter"),
        "mlp_layer_types": ("none",),
    }


def granite_shared_mlp(config: Config) -> Fields:
    """Granite's shared MLP: beside its experts, or the only one where it has none.

    Args:
        config: the config

    Returns:
        shared_expert_intermediate_size, and intermediate_size
    """
    width = config.whole("shared_intermediate_size")
    if config.field("num_experts"):
        return {"shared_expert_intermediate_size": width}
    return {"intermediate_size": width}


def jamba_experts(config: Config) -> Fields:
    """Jamba's experts, as wide as its MLP, in one of so many layers; a single one is an MLP.

    Args:
        config: the config

    Returns:
        num_experts and what follows from it
    """
    experts, visits = config.whole("num_experts", least=1), config.whole("num_experts_per_tok", least=1)
    period, offset = config.whole("expert_layer_period", least=1), config.whole("expert_layer_offset")
    if experts == 1:
        return {}
    layers = range(config.field("num_hidden_layers"))
    return {
        "num_experts": experts,
        "num_experts_per_tok": visits,
        "mlp_layer_types": ["sparse" if layer % period == offset else "dense" for layer in layers],
    }


def _automatic(config: Config, key: str) -> int | None:
    """A whole number; None where null or the word auto stands for the type's own rule."""
    if config.values.get(key) == "auto":
        config.understood.add(key)
        return None
    number: int | None = config.read(key, AUTO)
    return number
