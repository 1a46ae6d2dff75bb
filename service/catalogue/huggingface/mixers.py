"""Token mixers other than attention, by the many ways in which configs describe them.

Each function reads the keys of its model types and returns Model fields.
"""

from collections.abc import Callable, Mapping
from typing import Annotated

from annotated_types import Interval, Len

from service.catalogue.huggingface.config import MOST, MOST_LAYERS, Config
from service.catalogue.huggingface.layers import FULL, Builder, Fields, one_a_layer

AUTO = Annotated[int, Interval(ge=1, le=MOST)] | None
"""A whole number, or null for the type's own rule; the word auto means null."""
FACTOR = Annotated[float, Interval(ge=1e-3, le=1e3)]

MAMBA2_KEYS: Mapping[str, str] = {
    "state": "mamba_d_state", "heads": "mamba_n_heads", "width": "mamba_d_head", "groups": "mamba_n_groups",
    "taps": "mamba_d_conv", "conv_bias": "mamba_conv_bias", "bias": "mamba_proj_bias",
}  # fmt: skip
"""Keys of a state-space mixer in Bamba and similar types."""


def mamba(keys: Mapping[str, str], inner: Callable[[Config], int]) -> Builder:
    """A selective state space; the rank of its step is a sixteenth of hidden_size by default."""
    return lambda config: {
        "mamba_d_ssm": inner(config),
        "mamba_d_state": config.whole(keys["state"], least=1),
        "mamba_dt_rank": _automatic(config, keys["rank"]) or -(-config.needed("hidden_size") // 16),
        "conv_kernel": config.whole(keys["taps"], least=1),
        "conv_bias": config.flag(keys["conv_bias"]),
        "mixer_bias": config.flag(keys["bias"]),
    }


def width_or(key: str, otherwise: Callable[[Config], int]) -> Callable[[Config], int]:
    """A width that a key may hold."""

    def read(config: Config) -> int:
        width, given = otherwise(config), config.whole_or_none(key, least=1)
        return width if given is None else given

    return read


def expanded(key: str) -> Callable[[Config], int]:
    """An inner width so many times hidden_size."""
    return lambda config: int(config.read(key, FACTOR) * config.needed("hidden_size"))


def head_by_head(heads: str, width: str) -> Callable[[Config], int]:
    """An inner width from its heads."""
    return lambda config: config.whole(heads, least=1) * config.whole(width, least=1)


def mamba2(keys: Mapping[str, str], inner: Callable[[Config], int], *, norm: bool = True) -> Builder:
    """A state space with one decay a head."""

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
    """Falcon-H1's state space: mamba_d_ssm wide where present, its norm and biases by switches."""
    inner = width_or("mamba_d_ssm", expanded("mamba_expand"))
    fields = mamba2(MAMBA2_KEYS, inner, norm=config.flag("mamba_rms_norm"))(config)
    if config.flag("projectors_bias") != fields["mixer_bias"]:
        wrong = "differs from mamba_proj_bias, and no layer kind has a bias on one of both projections"
        raise config.problem("projectors_bias", "unsupported_value", wrong, "only both or none can be estimated")
    return fields


def delta_net(config: Config) -> Fields:
    """The gated delta net of Qwen3-Next and OLMo Hybrid; heads and widths may follow from attention's."""
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
    """LFM2's convolution, with biases on its projections too where it has one."""
    biased = config.flag("conv_bias")
    return {"conv_kernel": config.whole("conv_L_cache", least=1), "conv_bias": biased, "mixer_bias": biased}


def lfm2_width(config: Config) -> Fields:
    """LFM2's MLP width: two thirds of the key's value, rounded up, unless that is switched off."""
    width = config.whole_or_none("block_ff_dim", least=2) or config.whole("intermediate_size", least=2)
    config.understood.add("intermediate_size")
    multiple, factor = config.whole("block_multiple_of", least=1), config.read("block_ffn_dim_multiplier", FACTOR)
    if config.flag("block_auto_adjust_ff_dim"):
        width = -(-int(factor * (2 * width // 3)) // multiple) * multiple
    return {"intermediate_size": width}


def zamba2_block(config: Config) -> Fields:
    """Zamba2's shared blocks: attention twice as wide as the residual stream, an MLP four times by default."""
    hidden, heads = config.needed("hidden_size"), config.whole("num_attention_heads", least=1)
    return {
        "head_dim": 2 * hidden // heads,
        "intermediate_size": config.whole_or_none("intermediate_size", least=1) or 4 * hidden,
        "shared_attention_adapter": config.flag("use_shared_attention_adapter"),
        "mlp_layer_types": ("none",),
    }


def granite_shared_mlp(config: Config) -> Fields:
    """Granite's shared MLP: beside its experts, or the only one where it has none."""
    width = config.whole("shared_intermediate_size")
    if config.field("num_experts"):
        return {"shared_expert_intermediate_size": width}
    return {"intermediate_size": width}


def jamba_experts(config: Config) -> Fields:
    """Jamba's experts, as wide as its MLP, in one of so many layers; a single one is an MLP."""
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


LINEAR = "linear_attention"
"""Name of any layer with a state in configs."""

NAMES = Annotated[tuple[Annotated[str, Len(1, 40)], ...], Len(1, MOST_LAYERS)] | None


def listed(names: Mapping[str, str], otherwise: Callable[[Config], list[str]]) -> Builder:
    """Layers that a list names one by one."""

    def build(config: Config) -> Fields:
        found = layer_names(config, "layer_types", names, otherwise)
        one_a_layer(config, "layer_types", len(found), config.field("num_hidden_layers"))
        return {"layer_types": [names[name] for name in found]}

    return build


def layer_names(
    config: Config, key: str, known: Mapping[str, str], otherwise: Callable[[Config], list[str]]
) -> list[str]:
    """Names of the layers in a list."""
    names = config.read(key, NAMES)
    if names is None:
        return otherwise(config)
    unknown = next((place for place, name in enumerate(names) if name not in known), None)
    if unknown is not None:
        fix = f"use {', '.join(known)}"
        raise config.problem(f"{key}.{unknown}", "not_a_choice", "is no layer of this type", fix)
    return list(names)


def attention_every(period_key: str, offset_key: str, mixer: str) -> Builder:
    """Every so many layers one attends, the others mix tokens another way (Jamba)."""

    def build(config: Config) -> Fields:
        period, offset = config.whole(period_key, least=1), config.whole(offset_key)
        layers = range(config.field("num_hidden_layers"))
        return {"layer_types": [FULL if layer % period == offset else mixer for layer in layers]}

    return build


def attention_at(key: str, mixer: str) -> Builder:
    """Listed layers attend, the others mix tokens another way (Bamba)."""

    def build(config: Config) -> Fields:
        attending = set(config.wholes(key) or ())
        layers = range(config.field("num_hidden_layers"))
        return {"layer_types": [FULL if layer in attending else mixer for layer in layers]}

    return build


def attention_at_every(key: str, names: Mapping[str, str]) -> Builder:
    """A list of layers, or else attention every so many layers (Qwen3-Next)."""

    def build(config: Config) -> Fields:
        period, layers = config.whole(key, least=1), config.field("num_hidden_layers")
        in_turn = [LINEAR if (layer + 1) % period else FULL for layer in range(layers)]
        return listed(names, lambda _: in_turn)(config)

    return build


def minimax_layers(config: Config) -> Fields:
    """MiniMax's layers: by name, or by number (1 attends to all), or else in turn."""
    names = {LINEAR: "lightning_attention", FULL: FULL}
    numbers, layers = config.wholes("attn_type_list"), config.field("num_hidden_layers")
    in_turn = [1 - layer % 2 for layer in range(layers)]
    otherwise = [FULL if number else LINEAR for number in numbers or in_turn]
    one_a_layer(config, "attn_type_list", len(otherwise), layers)
    return listed(names, lambda _: otherwise)(config)


def every_layer_attends(config: Config) -> Fields:
    """A list in which each layer attends to all (MiniMax-M2); no layer of the type does otherwise."""
    numbers = config.wholes("attn_type_list") or ()
    if any(number != 1 for number in numbers):
        wrong = "names a layer that does not attend to all, and the type has none"
        raise config.problem("attn_type_list", "unsupported_value", wrong, "only 1 for each layer can be estimated")
    return {}


def olmo_hybrid_layers(config: Config) -> Fields:
    """OLMo Hybrid's layers: listed, or every fourth attends, or else the last one."""
    layers = config.field("num_hidden_layers")
    names = [FULL if layer % 4 == 3 else LINEAR for layer in range(layers)]
    in_turn = names if FULL in names else [*names[:-1], FULL]
    return listed({LINEAR: "gated_delta_net", FULL: FULL}, lambda _: in_turn)(config)


def granite_hybrid_layers(config: Config) -> Fields:
    """Granite's layers: listed, or else all with a state."""
    names = {LINEAR: "mamba2", "mamba": "mamba2", FULL: FULL, "attention": FULL}
    return listed(names, lambda _: [LINEAR] * config.field("num_hidden_layers"))(config)


def lfm2_layers(config: Config) -> Fields:
    """LFM2's layers: by name, or the numbers of those that attend, or else all of them do."""
    layers, numbers = range(config.field("num_hidden_layers")), config.wholes("full_attn_idxs")
    attending = set(layers if numbers is None else numbers)
    otherwise = [FULL if layer in attending else "conv" for layer in layers]
    return listed({"conv": "short_convolution", FULL: FULL}, lambda _: otherwise)(config)


def longcat_layers(config: Config) -> Fields:
    """LongCat's layers: each holds two blocks of attention and MLP, and experts beside the first."""
    return {"num_hidden_layers": 2 * config.whole("num_layers", least=1)}


def recurrent_gemma_mixers(config: Config) -> Fields:
    """RecurrentGemma's layers: a short list of blocks that repeats, and the width of the recurrence."""
    names = {"recurrent": "rg_lru", "attention": "sliding_attention"}
    key = "_block_types" if "_block_types" in config.values and "block_types" not in config.values else "block_types"
    blocks = layer_names(config, key, names, lambda _: ["recurrent", "recurrent", "attention"])
    layers = config.field("num_hidden_layers")
    return {
        "layer_types": [names[blocks[layer % len(blocks)]] for layer in range(layers)],
        "lru_width": config.whole_or_none("lru_width", least=1) or config.needed("hidden_size"),
        "conv_kernel": config.whole("conv1d_width", least=1),
        "intermediate_size": config.whole("intermediate_size", least=2) // 2,
    }


def zamba2_layers(config: Config) -> Fields:
    """Zamba2's layers: a state space each, some with a shared block before it."""
    names = {LINEAR: "mamba2", "mamba": "mamba2", "hybrid": "shared_attention_and_mamba2"}
    default = [*6 * [LINEAR], *6 * (["hybrid"] + 5 * [LINEAR]), "hybrid", *4 * [LINEAR], "hybrid", *3 * [LINEAR]]
    default += ["hybrid", *2 * [LINEAR]]
    found = layer_names(config, "layers_block_type", names, lambda _: default)
    return {"layer_types": [names[name] for name in found], "num_hidden_layers": len(found)}


PATTERN_LETTERS: Mapping[str, str] = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}
"""Letters of a Nemotron-H pattern and their names."""

NEMOTRON_H_BLOCKS: Mapping[str, tuple[str, str]] = {
    LINEAR: ("mamba2", "none"), "mamba": ("mamba2", "none"), FULL: ("full_attention", "none"),
    "attention": ("full_attention", "none"), "mlp": ("none", "dense"), "moe": ("none", "sparse"),
}  # fmt: skip
"""Token and channel mixers of each block; every block is a layer of its own."""

NEMOTRON_H_EXPERTS = (
    *("num_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_latent_size"),
    "shared_expert_intermediate_size",
)
"""Fields without meaning in models without a block of experts."""


def nemotron_h_layers(config: Config) -> Fields:
    """Nemotron-H's layers: a pattern of letters, or a list of names."""
    default = [LINEAR, "moe", FULL, "mlp"]
    names = layer_names(config, "layers_block_type", dict.fromkeys(NEMOTRON_H_BLOCKS, ""), lambda _: default)
    pattern = config.read("hybrid_override_pattern", Annotated[str, Len(1, MOST_LAYERS)] | None)
    if pattern is not None and config.values.get("layers_block_type") is None:
        unknown = set(pattern) - set(PATTERN_LETTERS)
        if unknown:
            wrong, fix = "has a letter that stands for no layer", f"use {', '.join(PATTERN_LETTERS)}"
            raise config.problem("hybrid_override_pattern", "not_a_choice", wrong, fix)
        names = [PATTERN_LETTERS[letter] for letter in pattern]
    blocks = [NEMOTRON_H_BLOCKS[name] for name in names]
    return {
        **_nemotron_h_experts(config, there="moe" in names),
        "num_hidden_layers": len(blocks),
        "layer_types": [mixer for mixer, _ in blocks],
        "mlp_layer_types": [mlp for _, mlp in blocks],
    }


def _nemotron_h_experts(config: Config, *, there: bool) -> Fields:
    """Fields of the experts; none where no block has any."""
    if there:
        return {name: config.field(name) for name in NEMOTRON_H_EXPERTS}
    config.understood.update(*(config.dialect.keys.get(name, (name,)) for name in NEMOTRON_H_EXPERTS))
    return {}
