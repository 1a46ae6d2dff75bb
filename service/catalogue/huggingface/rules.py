"""Layers, token mixers and experts by the many ways in which configs describe them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from annotated_types import Interval, Len

from service.catalogue.huggingface.config import MOST, MOST_LAYERS, Config, defaults_of

Name = TypeVar("Name", bound=str)
Fields = dict[str, Any]
Builder = Callable[[Config], Fields]

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
DENSE, SPARSE = "dense", "sparse"


def shortest_period(pattern: Sequence[Name]) -> tuple[Name, ...]:
    """The shortest list that, repeated, begins with a pattern.

    >>> shortest_period(["a", "b", "a", "b", "a"])
    ('a', 'b')
    """
    length = len(pattern)
    return next(
        tuple(pattern[:period])
        for period in range(1, length + 1)
        if all(pattern[i] == pattern[i - period] for i in range(period, length))
    )


def window_everywhere(config: Config) -> Fields:
    """Every layer has the window, if there is one (Mistral, Mixtral, Phi-3)."""
    return {"sliding_window": config.field("sliding_window")}


def switched_window(config: Config) -> Fields:
    """Every layer has the window, if use_sliding_window is true (Qwen3-MoE)."""
    window = config.field("sliding_window")
    return {"sliding_window": window if config.flag("use_sliding_window") else None}


def window_from_layer(config: Config) -> Fields:
    """Layers from max_window_layers on have the window, if it is switched on (Qwen2, Qwen3)."""
    switched, first = config.flag("use_sliding_window"), config.whole("max_window_layers")
    return _unlisted(config, lambda layer, _: switched and layer >= first)


def window_below_layer(config: Config) -> Fields:
    """Every second layer below max_window_layers has the window, if it is switched on (Qwen2-MoE)."""
    switched, end = config.flag("use_sliding_window"), config.whole("max_window_layers")
    return _unlisted(config, lambda layer, _: switched and layer < end and layer % 2 == 0)


def window_without_rotation(config: Config) -> Fields:
    """Layers without rotary positions have the window, if it is switched on (SmolLM3)."""
    switched = config.flag("use_sliding_window") and config.field("sliding_window") is not None
    return windowed(config, [FULL if rotates or not switched else SLIDING for rotates in _rotary_layers(config)])


def chunks_with_rotation(config: Config) -> Fields:
    """Layers with rotary positions attend inside chunks (Llama 4)."""
    rotary = [CHUNKED if rotates else FULL for rotates in _rotary_layers(config)]
    pattern = _listed_types(config, "layer_types") or rotary
    chunk = config.field("attention_chunk_size")
    return {"layer_types": [FULL] * len(pattern) if chunk is None else pattern, "attention_chunk_size": chunk}


def sparse_every_nth(config: Config) -> Fields:
    """Every moe_layer_freq-th layer is sparse, from the first one on (DeepSeek)."""
    period = config.whole("moe_layer_freq", least=1)
    return {"mlp_layer_types": [DENSE if layer % period else SPARSE for layer in config.layers]}


def sparse_but_listed(config: Config) -> Fields:
    """Every decoder_sparse_step-th layer is sparse, but those of mlp_only_layers (Qwen2-MoE, Qwen3-MoE)."""
    period, listed = config.whole("decoder_sparse_step", least=1), config.wholes("mlp_only_layers")
    dense = set(defaults_of(config.dialect.model_type)["mlp_only_layers"] or () if listed is None else listed)
    is_sparse = [layer not in dense and (layer + 1) % period == 0 for layer in config.layers]
    return {"mlp_layer_types": [SPARSE if one else DENSE for one in is_sparse]}


def sparse_if_listed(config: Config) -> Fields:
    """Layers of moe_layers are sparse, or every interleave_moe_layer_step-th (Llama 4)."""
    period, listed = config.whole("interleave_moe_layer_step", least=1), config.wholes("moe_layers")
    sparse = set(config.layers[period - 1 :: period] if listed is None else listed)
    return {"mlp_layer_types": [SPARSE if layer in sparse else DENSE for layer in config.layers]}


def _rotary_layers(config: Config) -> list[bool]:
    """Layers with rotary positions; `no_rope_layers` is 1 for them."""
    period, listed = config.whole("no_rope_layer_interval", least=1), config.wholes("no_rope_layers")
    if not listed:
        return [(layer + 1) % period != 0 for layer in config.layers]
    one_a_layer(config, "no_rope_layers", len(listed))
    return [bool(item) for item in listed]


def windowed(config: Config, pattern: list[str]) -> Fields:
    """Layers of the config, else by the type's rule, and their window; transformers saves a window that is off as 0."""
    pattern, window = _listed_types(config, "layer_types") or pattern, config.values.get("sliding_window")
    if SLIDING not in pattern and type(window) is int and window == 0:
        config.understood.add("sliding_window")
        return {"layer_types": pattern}
    window = config.field("sliding_window")
    if SLIDING in pattern and window is None:
        raise config.problem("sliding_window", "required", "is missing, and some layers slide", "give the window")
    return {"layer_types": pattern, "sliding_window": window}


def _listed_types(config: Config, key: str) -> list[str] | None:
    """Types of all layers in a list of the config; None where it has no such list."""
    config.understood.add(key)
    if not config.values.get(key):
        return None
    listed = config.field(key)
    one_a_layer(config, key, len(listed))
    return list(listed)


def one_a_layer(config: Config, key: str, items: int, what: str = "item") -> None:
    """Refuse a list that does not have one item a layer."""
    layers = len(config.layers)
    if items != layers:
        wrong = f"says {items} layers, and the model has {layers}"
        raise config.problem(key, "contradiction", wrong, f"give one {what} a layer")


def positions(extra: int = 0) -> Builder:
    """A learned position table as long as the longest sequence (GPT-2, OPT)."""
    return lambda config: {"position_embedding_rows": config.needed("max_position_embeddings") + extra}


def inner_width(key: str | None = None) -> Builder:
    """An MLP four times as wide as the residual stream, unless a key says otherwise (GPT-2, BLOOM, Falcon)."""

    def build(config: Config) -> Fields:
        width = config.whole_or_none(key, least=1) if key else None
        return {"intermediate_size": width or 4 * config.needed("hidden_size")}

    return build


def switched(key: str, field: str, on: Any, off: Any) -> Builder:
    """A field of Model by a key that is true or not."""
    return lambda config: {field: on if config.flag(key) else off}


def parallel_residual(norms: int) -> Builder:
    """Attention and MLP side by side, if use_parallel_residual is true (GPT-NeoX, StableLM)."""

    def build(config: Config) -> Fields:
        parallel = config.flag("use_parallel_residual")
        return {"parallel_attention": parallel, "norms_per_layer": norms if parallel else 2}

    return build


def opt_norms(config: Config) -> Fields:
    """OPT's norms: before the branches or after them, with or without weights."""
    before, removed = config.flag("do_layer_norm_before"), config.flag("_remove_final_layer_norm")
    trained = config.flag("layer_norm_elementwise_affine")
    return {"normalization": "layernorm" if trained else "nonparametric", "final_norm": before and not removed}


def square_output(config: Config) -> Fields:
    """Heads that fill the residual stream exactly, because the output projection is square (Helium)."""
    heads, hidden = config.needed("num_attention_heads"), config.needed("hidden_size")
    width = config.field("head_dim") or hidden // heads
    if heads * width != hidden:
        wrong = f"makes {heads} heads of {width} numbers, and the output projection reads {hidden}"
        raise config.problem("head_dim", "contradiction", wrong, "leave it out")
    return {"head_dim": width}


def value_width(config: Config) -> Fields:
    """Value heads that fill the residual stream together, unless a key has their width (MiniCPM3)."""
    hidden, heads = config.needed("hidden_size"), config.whole("num_attention_heads", least=1)
    return {"v_head_dim": config.field("v_head_dim") or hidden // heads}


def command_with_experts(config: Config) -> Fields:
    """RMSNorm with an epsilon, else LayerNorm; dense layers as wide as an expert (Command A, sparse)."""
    has_rms = config.values.get("rms_norm_eps") is not None
    dense = config.whole_or_none("prefix_dense_intermediate_size", least=1)
    return {
        "normalization": "rmsnorm" if has_rms else "layernorm_no_bias",
        "intermediate_size": dense or config.needed("moe_intermediate_size"),
    }


def falcon_heads(config: Config) -> Fields:
    """Falcon's key and value heads: a key in the new architecture, else one or as many as query heads."""
    heads, one = config.whole_or_none("num_kv_heads", least=1), config.flag("multi_query")
    return {"num_key_value_heads": heads if config.flag("new_decoder_architecture") else 1 if one else None}


def falcon_norms(config: Config) -> Fields:
    """Falcon's branches, side by side or not, and the norms before them."""
    parallel, new = config.flag("parallel_attn"), config.flag("new_decoder_architecture")
    norms = config.whole_or_none("num_ln_in_parallel_attn", least=1) or (2 if new else 1)
    return {"parallel_attention": parallel, "norms_per_layer": 2 if not parallel or norms == 2 else 1}


def mpt_branches(config: Config) -> Fields:
    """MPT's MLP width and biases, as llm-foundry builds them."""
    biased, ratio = not config.flag("no_bias"), config.whole("expansion_ratio", least=1)
    if biased or ratio != 4:
        config.notes.append("MLP width and biases are as llm-foundry builds them; transformers ignores these keys")
    return {
        "intermediate_size": ratio * config.field("hidden_size"),
        "normalization": "layernorm" if biased else "layernorm_no_bias",
        "attention_bias": biased,
        "mlp_bias": biased,
    }


def dense_before(layers: int) -> Builder:
    """The leading layers are dense, unless mlp_layer_types lists them (GLM-4.7 Flash, Hunyuan 3, Mellum)."""
    return lambda config: _listed(config) or {"first_k_dense_replace": min(layers, config.needed("num_hidden_layers"))}


def dense_before_first_k(config: Config) -> Fields:
    """The first_k_dense_replace leading layers are dense, unless mlp_layer_types lists them (EXAONE with experts)."""
    leading = {"first_k_dense_replace": config.field("first_k_dense_replace")}
    return _listed(config) or leading


def sparse_between(config: Config) -> Fields:
    """Every moe_layer_interval-th layer is sparse, from moe_layer_start_index to moe_layer_end_index (ERNIE 4.5)."""
    period = config.whole("moe_layer_interval", least=1)
    start, end = config.whole("moe_layer_start_index"), config.whole("moe_layer_end_index", least=-1)
    end = len(config.layers) - 1 if end == -1 else end
    return _pattern([SPARSE if start <= i <= end and (i + 1) % period == 0 else DENSE for i in config.layers])


def experts_of_hunyuan(config: Config) -> Fields:
    """Hunyuan's experts: numbers or lists by layer, and a shared expert as wide as a routed one."""
    width = config.needed("moe_intermediate_size")
    for key, only in (("moe_intermediate_size", width), ("num_shared_expert", 1)):
        if _in_every_layer(config, key) not in (None, only):
            wrong = f"is not {only}, and transformers builds one shared expert and routed ones of intermediate_size"
            raise config.problem(key, "unsupported_value", wrong, f"only {only} can be estimated")
    visits = {key: _in_every_layer(config, key) for key in ("moe_topk", "num_experts_per_tok")}
    given = [number for key, number in visits.items() if key in config.values] or [visits["moe_topk"]]
    if len(set(given)) > 1:
        raise config.problem("moe_topk", "contradiction", "differs from num_experts_per_tok", "leave one of them out")
    return {"num_experts_per_tok": given[0], "shared_expert_intermediate_size": width}


def shared_experts_of(key: str, least: int = 0) -> Builder:
    """Shared experts, each as wide as a routed one (DeepSeek, GLM-4.5, ERNIE 4.5, EXAONE, Hunyuan 3)."""

    def build(config: Config) -> Fields:
        experts = config.whole_or_none(key, least=least) or 0
        return {"shared_expert_intermediate_size": experts * config.needed("moe_intermediate_size")}

    return build


def _in_every_layer(config: Config, key: str) -> int | None:
    if not isinstance(config.values.get(key), list):
        return config.whole_or_none(key)
    numbers = {*(config.wholes(key) or ())}
    if len(numbers) != 1:
        wrong = "is not one number in every layer, and no layer kind describes that"
        raise config.problem(key, "unsupported_value", wrong, "give one number")
    return numbers.pop()


def _listed(config: Config) -> Fields | None:
    types = _listed_types(config, "mlp_layer_types")
    return None if types is None else _pattern(types)


def _pattern(types: list[str]) -> Fields:
    """A pattern, or the number of leading dense layers where the pattern is no more than that."""
    leading = types.index(SPARSE) if SPARSE in types else len(types)
    return {"mlp_layer_types": types} if DENSE in types[leading:] else {"first_k_dense_replace": leading}


GLOBAL_AND_LOCAL = {"global": FULL, "local": SLIDING}
"""GPT-Neo's names for attention."""


def full_every(period: int, first: int) -> Builder:
    """All but every period-th layer have the window, unless a list differs (OLMo 3, Code World Model, Mellum)."""
    return lambda config: _unlisted(config, lambda layer, _: layer % period != first)


def window_but_every_nth(key: str) -> Builder:
    """All but every n-th layer have the window; where layers are listed, n may be text (EXAONE, Trinity)."""

    def build(config: Config) -> Fields:
        config.understood.add(key)
        if config.values.get("layer_types"):
            return _unlisted(config, lambda *_: False)
        period = config.whole(key, least=1)
        return _unlisted(config, lambda layer, _: (layer + 1) % period != 0)

    return build


def window_after_layer(config: Config) -> Fields:
    """Layers from max_window_layers on have the window, if there is one (dots.llm1)."""
    first, has_window = config.whole("max_window_layers"), config.field("sliding_window") is not None
    return _unlisted(config, lambda layer, _: has_window and layer >= first)


def window_if_any(config: Config) -> Fields:
    """Every layer has the window, if there is one, unless a list differs (Ministral)."""
    has_window = config.field("sliding_window") is not None
    return _unlisted(config, lambda *_: has_window)


def window_between_full_ends(config: Config) -> Fields:
    """The first two layers, every fourth one and the last are full, all others have the window (Flint)."""
    return _unlisted(config, lambda layer, layers: layer >= 2 and layer % 4 != 1 and layer < layers - 1)


def window_after_prefix(config: Config) -> Fields:
    """A period for the leading dense layers, then another for the sparse ones (Command A with experts)."""
    dense = config.whole("first_k_dense_replace")
    early = config.whole("prefix_dense_sliding_window_pattern", least=1)
    later = config.whole("sliding_window_pattern", least=1)
    return _unlisted(
        config, lambda layer, _: (layer + 1) % early != 0 if layer < dense else (layer - dense + 1) % later != 0
    )


def global_and_local(config: Config) -> Fields:
    """Layers by attention_types, names and their repeats: [[["global", "local"], 12]] (GPT-Neo)."""
    key = "attention_types"
    if key not in config.values:
        config.assumed[key] = defaults_of(config.dialect.model_type)[key]
    groups = config.values.get(key) or defaults_of(config.dialect.model_type)[key]
    if not isinstance(groups, list) or not all(map(_is_group, groups)):
        wrong = 'is not a list like [[["global", "local"], 12]]'
        raise config.problem(key, "unsupported_value", wrong, "give names of layers and how often they repeat")
    one_a_layer(config, key, sum(len(names) * times for names, times in groups), "name")
    names = [name for group, times in groups for name in group * times]
    config.understood |= {key, "attention_layers"}
    if config.values.get("attention_layers", names) != names:
        raise config.problem("attention_layers", "contradiction", f"differs from {key}", "leave it out")
    window = config.field("sliding_window")
    return {"layer_types": [GLOBAL_AND_LOCAL[name] for name in names], "sliding_window": window}


def _is_group(group: Any) -> bool:
    """Whether an item of attention_types is a list of known names and its repeats."""
    if not isinstance(group, list) or len(group) != 2:
        return False
    names, times = group
    known = isinstance(names, list) and all(name in tuple(GLOBAL_AND_LOCAL) for name in names)
    return known and type(times) is int and 0 <= times <= MOST_LAYERS


def _unlisted(config: Config, has_window: Callable[[int, int], bool]) -> Fields:
    """What `layer_types` lists, else the window where a layer of so many layers has it."""
    layers = config.layers
    return windowed(config, [SLIDING if has_window(layer, len(layers)) else FULL for layer in layers])


def depths_left_out(count: str, *others: str) -> Builder:
    """Multi-token-prediction depths of a kind that no layer has: left out, as transformers does, with an assumption."""

    def build(config: Config) -> Fields:
        config.understood.update(others)
        if config.whole_or_none(count):
            config.notes.append(f"multi-token-prediction depths ({count}) are left out")
        return {}

    return build


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
    def read(config: Config) -> int:
        width, given = otherwise(config), config.whole_or_none(key, least=1)
        return width if given is None else given

    return read


def expanded(key: str) -> Callable[[Config], int]:
    """An inner width so many times hidden_size."""
    return lambda config: int(config.read(key, FACTOR) * config.needed("hidden_size"))


def head_by_head(heads: str, width: str) -> Callable[[Config], int]:
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
    field = "shared_expert_intermediate_size" if config.field("num_experts") else "intermediate_size"
    return {field: config.whole("shared_intermediate_size")}


def jamba_experts(config: Config) -> Fields:
    """Jamba's experts, as wide as its MLP, in one of so many layers; a single one is an MLP."""
    experts, visits = config.whole("num_experts", least=1), config.whole("num_experts_per_tok", least=1)
    period, offset = config.whole("expert_layer_period", least=1), config.whole("expert_layer_offset")
    if experts == 1:
        return {}
    return {
        "num_experts": experts,
        "num_experts_per_tok": visits,
        "mlp_layer_types": [SPARSE if layer % period == offset else DENSE for layer in config.layers],
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
    def build(config: Config) -> Fields:
        found = layer_names(config, "layer_types", names, otherwise)
        one_a_layer(config, "layer_types", len(found))
        return {"layer_types": [names[name] for name in found]}

    return build


def layer_names(
    config: Config, key: str, known: Mapping[str, str], otherwise: Callable[[Config], list[str]]
) -> list[str]:
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
        return {"layer_types": [FULL if layer % period == offset else mixer for layer in config.layers]}

    return build


def attention_at(key: str, mixer: str) -> Builder:
    """Listed layers attend, the others mix tokens another way (Bamba)."""

    def build(config: Config) -> Fields:
        attending = set(config.wholes(key) or ())
        return {"layer_types": [FULL if layer in attending else mixer for layer in config.layers]}

    return build


def attention_at_every(key: str, names: Mapping[str, str]) -> Builder:
    """A list of layers, or else attention every so many layers (Qwen3-Next)."""

    def build(config: Config) -> Fields:
        period = config.whole(key, least=1)
        in_turn = [LINEAR if (layer + 1) % period else FULL for layer in config.layers]
        return listed(names, lambda _: in_turn)(config)

    return build


def minimax_layers(config: Config) -> Fields:
    """MiniMax's layers: by name, or by number (1 attends to all), or else in turn."""
    names = {LINEAR: "lightning_attention", FULL: FULL}
    numbers = config.wholes("attn_type_list") or [1 - layer % 2 for layer in config.layers]
    otherwise = [FULL if number else LINEAR for number in numbers]
    one_a_layer(config, "attn_type_list", len(otherwise))
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
    names = [FULL if layer % 4 == 3 else LINEAR for layer in config.layers]
    in_turn = names if FULL in names else [*names[:-1], FULL]
    return listed({LINEAR: "gated_delta_net", FULL: FULL}, lambda _: in_turn)(config)


def granite_hybrid_layers(config: Config) -> Fields:
    """Granite's layers: listed, or else all with a state."""
    names = {LINEAR: "mamba2", "mamba": "mamba2", FULL: FULL, "attention": FULL}
    return listed(names, lambda _: [LINEAR for _ in config.layers])(config)


def lfm2_layers(config: Config) -> Fields:
    """LFM2's layers: by name, or the numbers of those that attend, or else all of them do."""
    numbers = config.wholes("full_attn_idxs")
    otherwise = [FULL if numbers is None or layer in numbers else "conv" for layer in config.layers]
    return listed({"conv": "short_convolution", FULL: FULL}, lambda _: otherwise)(config)


def longcat_layers(config: Config) -> Fields:
    """LongCat's layers: each holds two blocks of attention and MLP, and experts beside the first."""
    return {"num_hidden_layers": 2 * config.whole("num_layers", least=1)}


def recurrent_gemma_mixers(config: Config) -> Fields:
    """RecurrentGemma's layers: a short list of blocks that repeats, and the width of the recurrence."""
    names = {"recurrent": "rg_lru", "attention": "sliding_attention"}
    key = "_block_types" if "_block_types" in config.values and "block_types" not in config.values else "block_types"
    blocks = layer_names(config, key, names, lambda _: ["recurrent", "recurrent", "attention"])
    return {
        "layer_types": [names[blocks[layer % len(blocks)]] for layer in config.layers],
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
    experts: Fields = {}
    if "moe" in names:
        experts = {name: config.field(name) for name in NEMOTRON_H_EXPERTS}
    else:
        config.understood.update(*(config.dialect.keys.get(name, (name,)) for name in NEMOTRON_H_EXPERTS))
    return {
        **experts,
        "num_hidden_layers": len(blocks),
        "layer_types": [mixer for mixer, _ in blocks],
        "mlp_layer_types": [mlp for _, mlp in blocks],
    }
