"""Layers by the many ways in which configs describe them: widths, windows, sparse layers, patterns.

Each function reads the keys of its model types and returns Model fields.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from service.catalogue.huggingface.config import MOST_LAYERS, Config, defaults_of

Name = TypeVar("Name", bound=str)
Fields = dict[str, Any]
Builder = Callable[[Config], Fields]

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


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
    layers = range(config.field("num_hidden_layers"))
    return windowed(config, [SLIDING if switched and layer >= first else FULL for layer in layers])


def window_below_layer(config: Config) -> Fields:
    """Every second layer below max_window_layers has the window, if it is switched on (Qwen2-MoE)."""
    switched, end = config.flag("use_sliding_window"), config.whole("max_window_layers")
    layers = range(config.field("num_hidden_layers"))
    has_window = [switched and layer < end and layer % 2 == 0 for layer in layers]
    return windowed(config, [SLIDING if one else FULL for one in has_window])


def alternating_window(config: Config) -> Fields:
    """Every second layer has the window, the first one too (Gemma 2, gpt-oss)."""
    layers = range(config.field("num_hidden_layers"))
    return windowed(config, [FULL if layer % 2 else SLIDING for layer in layers])


def window_without_rotation(config: Config) -> Fields:
    """Layers without rotary positions have the window, if it is switched on (SmolLM3)."""
    switched = config.flag("use_sliding_window") and config.field("sliding_window") is not None
    rotary = _rotary_layers(config)
    return windowed(config, [SLIDING if switched and not rotates else FULL for rotates in rotary])


def chunks_with_rotation(config: Config) -> Fields:
    """Layers with rotary positions attend inside chunks (Llama 4)."""
    rotary = _rotary_layers(config)
    pattern = _layer_types(config, [CHUNKED if rotates else FULL for rotates in rotary])
    chunk = config.field("attention_chunk_size")
    if chunk is None:
        pattern = [FULL] * len(pattern)
    return {"layer_types": pattern, "attention_chunk_size": chunk}


def sparse_every_nth(config: Config) -> Fields:
    """Every moe_layer_freq-th layer is sparse, from the first one on (DeepSeek)."""
    period = config.whole("moe_layer_freq", least=1)
    layers = range(config.field("num_hidden_layers"))
    return {"mlp_layer_types": ["dense" if layer % period else "sparse" for layer in layers]}


def sparse_but_listed(config: Config) -> Fields:
    """Every decoder_sparse_step-th layer is sparse, but those of mlp_only_layers (Qwen2-MoE, Qwen3-MoE)."""
    period, listed = config.whole("decoder_sparse_step", least=1), config.wholes("mlp_only_layers")
    dense = set(defaults_of(config.dialect.model_type)["mlp_only_layers"] or () if listed is None else listed)
    layers = range(config.field("num_hidden_layers"))
    return {
        "mlp_layer_types": [
            "sparse" if layer not in dense and (layer + 1) % period == 0 else "dense" for layer in layers
        ]
    }


def sparse_if_listed(config: Config) -> Fields:
    """Layers of moe_layers are sparse, or every interleave_moe_layer_step-th (Llama 4)."""
    period, listed = config.whole("interleave_moe_layer_step", least=1), config.wholes("moe_layers")
    layers = range(config.field("num_hidden_layers"))
    sparse = set(range(period - 1, len(layers), period) if listed is None else listed)
    return {"mlp_layer_types": ["sparse" if layer in sparse else "dense" for layer in layers]}


def _rotary_layers(config: Config) -> list[bool]:
    """Layers with rotary positions; `no_rope_layers` is 1 for them."""
    period, listed = config.whole("no_rope_layer_interval", least=1), config.wholes("no_rope_layers")
    layers = config.field("num_hidden_layers")
    if not listed:
        return [(layer + 1) % period != 0 for layer in range(layers)]
    one_a_layer(config, "no_rope_layers", len(listed), layers)
    return [bool(item) for item in listed]


def windowed(config: Config, pattern: list[str]) -> Fields:
    """Layers as the config lists them, else by the type's own rule, and the length of their window.

    A window of 0 is how transformers saves a window that is switched off.
    """
    pattern, window = _layer_types(config, pattern), config.values.get("sliding_window")
    if SLIDING not in pattern and type(window) is int and window == 0:
        config.understood.add("sliding_window")
        return {"layer_types": pattern}
    window = config.field("sliding_window")
    if SLIDING in pattern and window is None:
        raise config.problem("sliding_window", "required", "is missing, and some layers slide", "give the window")
    return {"layer_types": pattern, "sliding_window": window}


def _layer_types(config: Config, otherwise: list[str]) -> list[str]:
    """`layer_types` of each layer, else the type's own rule."""
    config.understood.add("layer_types")
    if not config.values.get("layer_types"):
        return otherwise
    listed = config.field("layer_types")
    one_a_layer(config, "layer_types", len(listed), config.field("num_hidden_layers"))
    return list(listed)


def one_a_layer(config: Config, key: str, items: int, layers: int) -> None:
    """Refuse a list that does not have one item a layer."""
    if items != layers:
        wrong = f"says {items} layers, and the model has {layers}"
        raise config.problem(key, "contradiction", wrong, "give one item a layer")


def positions(extra: int = 0) -> Builder:
    """A learned position table as long as the longest sequence (GPT-2, OPT)."""
    return lambda config: {"position_embedding_rows": config.needed("max_position_embeddings") + extra}


def inner_width(key: str | None = None) -> Builder:
    """An MLP four times as wide as the residual stream, unless a key says otherwise (GPT-2, BLOOM, Falcon)."""

    def build(config: Config) -> Fields:
        width = config.whole_or_none(key, least=1) if key else None
        return {"intermediate_size": width or 4 * config.needed("hidden_size")}

    return build


def qk_norm(key: str, kind: str) -> Builder:
    """A norm on queries and keys, if a key is true (Command R, GLM-4.5, Llama 4, StableLM)."""
    return lambda config: {"qk_norm": kind if config.flag(key) else "none"}


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


def multi_query(config: Config) -> Fields:
    """One key and value head, if multi_query is true, else as many as query heads (StarCoder)."""
    return {"num_key_value_heads": 1 if config.flag("multi_query") else None}


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


def post_norms(key: str) -> Builder:
    """Norms after both branches too, if a key is true (HyperCLOVA X)."""
    return lambda config: {"norms_per_layer": 4 if config.flag(key) else 2}


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
    if config.flag("new_decoder_architecture"):
        return {"num_key_value_heads": heads}
    return {"num_key_value_heads": 1 if one else None}


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


def shared_experts(config: Config) -> Fields:
    """Shared experts, each as wide as a routed one (DeepSeek, GLM-4.5)."""
    experts = config.whole_or_none("n_shared_experts") or 0
    return {"shared_expert_intermediate_size": experts * config.needed("moe_intermediate_size")}


DENSE, SPARSE = "dense", "sparse"


def dense_before(layers: int) -> Builder:
    """The leading layers are dense, unless mlp_layer_types lists them (GLM-4.7 Flash, Hunyuan 3, Mellum)."""
    return lambda config: _listed(config) or {"first_k_dense_replace": min(layers, config.needed("num_hidden_layers"))}


def dense_before_first_k(config: Config) -> Fields:
    """The first_k_dense_replace leading layers are dense, unless mlp_layer_types lists them (EXAONE with experts)."""
    leading = config.field("first_k_dense_replace")
    return _listed(config) or {"first_k_dense_replace": leading}


def sparse_between(config: Config) -> Fields:
    """Every moe_layer_interval-th layer is sparse, from moe_layer_start_index to moe_layer_end_index (ERNIE 4.5)."""
    layers, period = config.needed("num_hidden_layers"), config.whole("moe_layer_interval", least=1)
    start, end = config.whole("moe_layer_start_index"), config.whole("moe_layer_end_index", least=-1)
    end = layers - 1 if end == -1 else end
    return _pattern([SPARSE if start <= i <= end and (i + 1) % period == 0 else DENSE for i in range(layers)])


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
    """Shared experts, each as wide as a routed one (ERNIE 4.5, EXAONE with experts, Hunyuan 3)."""

    def build(config: Config) -> Fields:
        experts = config.whole_or_none(key, least=least) or 0
        return {"shared_expert_intermediate_size": experts * config.needed("moe_intermediate_size")}

    return build


def _in_every_layer(config: Config, key: str) -> int | None:
    """A number that may be a list with the same number for each layer."""
    if not isinstance(config.values.get(key), list):
        return config.whole_or_none(key)
    numbers = config.wholes(key) or ()
    if len(set(numbers)) != 1:
        wrong = "is not one number in every layer, and no layer kind describes that"
        raise config.problem(key, "unsupported_value", wrong, "give one number")
    return numbers[0]


def _listed(config: Config) -> Fields | None:
    """`mlp_layer_types` of each layer."""
    config.understood.add("mlp_layer_types")
    if not config.values.get("mlp_layer_types"):
        return None
    listed = config.field("mlp_layer_types")
    one_a_layer(config, "mlp_layer_types", len(listed), config.needed("num_hidden_layers"))
    return _pattern(list(listed))


def _pattern(types: list[str]) -> Fields:
    """A pattern, or the number of leading dense layers where the pattern is no more than that."""
    leading = types.index(SPARSE) if SPARSE in types else len(types)
    return {"mlp_layer_types": types} if DENSE in types[leading:] else {"first_k_dense_replace": leading}


GLOBAL_AND_LOCAL = {"global": FULL, "local": SLIDING}
"""GPT-Neo's names for attention."""


def full_every(period: int, first: int) -> Builder:
    """All but every period-th layer have the window, fixed by the type's code (OLMo 3, Code World Model)."""
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


def window_if_listed(config: Config) -> Fields:
    """No layer has the window, unless a list has it (Mellum)."""
    return _unlisted(config, lambda *_: False)


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
    key, layers = "attention_types", config.needed("num_hidden_layers")
    if key not in config.values:
        config.assumed[key] = defaults_of(config.dialect.model_type)[key]
    groups = config.values.get(key) or defaults_of(config.dialect.model_type)[key]
    if not isinstance(groups, list) or not all(map(_is_group, groups)):
        wrong = 'is not a list like [[["global", "local"], 12]]'
        raise config.problem(key, "unsupported_value", wrong, "give names of layers and how often they repeat")
    named = sum(len(names) * times for names, times in groups)
    if named != layers:
        wrong = f"says {named} layers, and the model has {layers}"
        raise config.problem(key, "contradiction", wrong, "give one name a layer")
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
    layers = config.needed("num_hidden_layers")
    return windowed(config, [SLIDING if has_window(layer, layers) else FULL for layer in range(layers)])


def depths_left_out(count: str, *others: str) -> Builder:
    """Multi-token-prediction depths of a kind that no layer has: left out, as transformers does, with an assumption."""

    def build(config: Config) -> Fields:
        config.understood.update(others)
        if config.whole_or_none(count):
            config.notes.append(f"multi-token-prediction depths ({count}) are left out")
        return {}

    return build
