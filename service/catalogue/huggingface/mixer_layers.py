"""Which layers mix tokens how, by the many ways in which configs of hybrid models say so?

Each builder reads the keys of its model type and returns Model fields.
"""

from collections.abc import Callable, Mapping
from typing import Annotated

from annotated_types import Len

from service.catalogue.huggingface.config import MOST_LAYERS, Config
from service.catalogue.huggingface.layer_patterns import FULL, Builder, Fields, one_a_layer

LINEAR = "linear_attention"
"""What configs call any layer that carries a state."""

NAMES = Annotated[tuple[Annotated[str, Len(1, 40)], ...], Len(1, MOST_LAYERS)] | None


def listed(names: Mapping[str, str], otherwise: Callable[[Config], list[str]]) -> Builder:
    """Layers that a list names one by one.

    Args:
        names: the mixer by each name that the list may hold
        otherwise: the names where there is no list

    Returns:
        builder of layer_types
    """

    def build(config: Config) -> Fields:
        found = layer_names(config, "layer_types", names, otherwise)
        one_a_layer(config, "layer_types", len(found), config.field("num_hidden_layers"))
        return {"layer_types": [names[name] for name in found]}

    return build


def layer_names(
    config: Config, key: str, known: Mapping[str, str], otherwise: Callable[[Config], list[str]]
) -> list[str]:
    """The names that a list gives to the layers.

    Args:
        config: the config
        key: where the list stands
        known: names that it may hold
        otherwise: the names where there is no list

    Returns:
        one name a layer

    Raises:
        Refused: another name, or not one a layer
    """
    names = config.read(key, NAMES)
    if names is None:
        return otherwise(config)
    unknown = next((place for place, name in enumerate(names) if name not in known), None)
    if unknown is not None:
        fix = f"use {', '.join(known)}"
        raise config.problem(f"{key}.{unknown}", "not_a_choice", "is no layer of this type", fix)
    return list(names)


def attention_every(period_key: str, offset_key: str, mixer: str) -> Builder:
    """Every so many layers one attends, the others mix tokens another way (Jamba).

    Args:
        period_key: where it says how many
        offset_key: where it says which layer is the first
        mixer: the other way

    Returns:
        builder of layer_types
    """

    def build(config: Config) -> Fields:
        period, offset = config.whole(period_key, least=1), config.whole(offset_key)
        layers = range(config.field("num_hidden_layers"))
        return {"layer_types": [FULL if layer % period == offset else mixer for layer in layers]}

    return build


def attention_at(key: str, mixer: str) -> Builder:
    """Listed layers attend, the others mix tokens another way (Bamba).

    Args:
        key: where the list stands
        mixer: the other way

    Returns:
        builder of layer_types
    """

    def build(config: Config) -> Fields:
        attending = set(config.wholes(key) or ())
        layers = range(config.field("num_hidden_layers"))
        return {"layer_types": [FULL if layer in attending else mixer for layer in layers]}

    return build


def attention_at_every(key: str, names: Mapping[str, str]) -> Builder:
    """A list of layers, or else attention every so many layers (Qwen3-Next).

    Args:
        key: where it says how many
        names: the mixer by each name that the list may hold

    Returns:
        builder of layer_types
    """

    def build(config: Config) -> Fields:
        period, layers = config.whole(key, least=1), config.field("num_hidden_layers")
        in_turn = [LINEAR if (layer + 1) % period else FULL for layer in range(layers)]
        return listed(names, lambda _: in_turn)(config)

    return build


def minimax_layers(config: Config) -> Fields:
    """MiniMax's layers: by name, or by number (1 attends to all), or else in turn.

    Args:
        config: the config

    Returns:
        layer_types
    """
    names = {LINEAR: "lightning_attention", FULL: FULL}
    numbers, layers = config.wholes("attn_type_list"), config.field("num_hidden_layers")
    in_turn = [1 - layer % 2 for layer in range(layers)]
    otherwise = [FULL if number else LINEAR for number in numbers or in_turn]
    one_a_layer(config, "attn_type_list", len(otherwise), layers)
    return listed(names, lambda _: otherwise)(config)


def every_layer_attends(config: Config) -> Fields:
    """A list that may say of each layer that it attends to all (MiniMax-M2); no layer of the type does otherwise.

    Args:
        config: the config

    Returns:
        no field

    Raises:
        Refused: the list says otherwise
    """
    numbers = config.wholes("attn_type_list") or ()
    if any(number != 1 for number in numbers):
        wrong = "names a layer that does not attend to all, and the type has none"
        raise config.problem("attn_type_list", "unsupported_value", wrong, "only 1 for each layer can be estimated")
    return {}


def olmo_hybrid_names(config: Config) -> list[str]:
    """Layers of OLMo Hybrid without a list: every fourth attends, or else the last one.

    Args:
        config: the config

    Returns:
        one name a layer
    """
    layers = config.field("num_hidden_layers")
    names = [FULL if layer % 4 == 3 else LINEAR for layer in range(layers)]
    return names if FULL in names else [*names[:-1], FULL]


def lfm2_layers(config: Config) -> Fields:
    """LFM2's layers: by name, or the numbers of those that attend, or else all of them do.

    Args:
        config: the config

    Returns:
        layer_types
    """
    layers, numbers = range(config.field("num_hidden_layers")), config.wholes("full_attn_idxs")
    attending = set(layers if numbers is None else numbers)
    otherwise = [FULL if layer in attending else "conv" for layer in layers]
    return listed({"conv": "short_convolution", FULL: FULL}, lambda _: otherwise)(config)


def longcat_layers(config: Config) -> Fields:
    """LongCat's layers: each holds two blocks of attention and MLP, and experts beside the first.

    Args:
        config: the config

    Returns:
        num_hidden_layers
    """
    return {"num_hidden_layers": 2 * config.whole("num_layers", least=1)}


def recurrent_gemma_mixers(config: Config) -> Fields:
    """RecurrentGemma's layers: a short list of blocks that repeats, and the width of the recurrence.

    Args:
        config: the config

    Returns:
        layer_types, lru_width and intermediate_size
    """
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
    """Zamba2's layers: a state space each, some with a shared block before it.

    Args:
        config: the config

    Returns:
        layer_types
    """
    names = {LINEAR: "mamba2", "mamba": "mamba2", "hybrid": "shared_attention_and_mamba2"}
    default = [*6 * [LINEAR], *6 * (["hybrid"] + 5 * [LINEAR]), "hybrid", *4 * [LINEAR], "hybrid", *3 * [LINEAR]]
    default += ["hybrid", *2 * [LINEAR]]
    found = layer_names(config, "layers_block_type", names, lambda _: default)
    return {"layer_types": [names[name] for name in found], "num_hidden_layers": len(found)}


PATTERN_LETTERS: Mapping[str, str] = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}
"""Letters of a Nemotron-H pattern and the names that stand for them."""

NEMOTRON_H_BLOCKS: Mapping[str, tuple[str, str]] = {
    LINEAR: ("mamba2", "none"), "mamba": ("mamba2", "none"), FULL: ("full_attention", "none"),
    "attention": ("full_attention", "none"), "mlp": ("none", "dense"), "moe": ("none", "sparse"),
}  # fmt: skip
"""What each block mixes, tokens and channels; every block is a layer of its own."""

NEMOTRON_H_EXPERTS = (
    *("num_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_latent_size"),
    "shared_expert_intermediate_size",
)
"""Fields that mean nothing without a block of experts."""


def nemotron_h_layers(config: Config) -> Fields:
    """Nemotron-H's layers: a pattern of letters, or a list of names.

    Args:
        config: the config

    Returns:
        num_hidden_layers, layer_types and mlp_layer_types; num_experts and what follows from it
    """
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
    """What the keys say of the experts; nothing where no block has any."""
    if there:
        return {name: config.field(name) for name in NEMOTRON_H_EXPERTS}
    config.understood.update(*(config.dialect.keys.get(name, (name,)) for name in NEMOTRON_H_EXPERTS))
    return {}
