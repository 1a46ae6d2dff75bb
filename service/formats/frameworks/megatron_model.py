"""Model options of Megatron-LM: a rule for each field of Model, their reader, and pipeline layouts.

Source: NVIDIA/Megatron-LM@d98e8a64 (core 0.20.0) megatron/training/arguments.py, its defaults included,
megatron/core/transformer/transformer_config.py, megatron/training/config/training_config.py,
megatron/core/transformer/pipeline_parallel_layer_layout.py.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from service.calibration.tables import NotExpressible
from service.estimator.complete import CompleteQuestion
from service.estimator.question import Model
from service.formats.rules import (
    Draft,
    Fragment,
    Written,
    framework_table,
    not_expressible,
    options_of,
    rules_of,
)

_WRITE_A_SPEC = "write the layer in a spec of your own and name it by --spec"
_NOT_IN_OPTIONS = "options give such layers no place; they are written as a pattern or as a spec"


def layer_list(kinds: list[int]) -> str:
    """A list of 0 and 1, one for each layer, in the form of moe-layer-freq.

    >>> layer_list([0, 1, 1])
    '([0]*1+[1]*2)'
    """
    return f"({'+'.join(f'[{kind}]*{len(list(run))}' for kind, run in groupby(kinds))})"


def _latent_attention(value: Any, question: CompleteQuestion) -> Any:
    return value if question.model.kv_lora_rank is not None else None


_LATENT_ATTENTION = ("model.q_lora_rank", "model.qk_nope_head_dim", "model.qk_rope_head_dim", "model.v_head_dim")
_DELTA_NETS = (
    "model.conv_kernel", "model.linear_num_key_heads", "model.linear_num_value_heads", "model.linear_key_head_dim",
    "model.linear_value_head_dim",
)  # fmt: skip
_EXPERTS = (
    "model.num_experts", "model.num_experts_per_tok", "model.moe_intermediate_size",
    "model.shared_expert_intermediate_size",
)  # fmt: skip


def _query_groups(value: Any, question: CompleteQuestion) -> Written:
    latent = question.model.kv_lora_rank is not None
    if value is None or latent or value == question.model.num_attention_heads:
        return None
    return {"group-query-attention": True, "num-query-groups": value}


def _head_width(value: Any, question: CompleteQuestion) -> Any:
    model = question.model
    is_default = model.num_attention_heads and model.num_attention_heads * (value or 0) == model.hidden_size
    return None if is_default or model.kv_lora_rank is not None else value


def _biases(value: Any, question: CompleteQuestion) -> Written:
    """Biases of the MLP and of the attention's output share an option; those of queries, keys, values have another."""
    model = question.model
    attends = model.num_attention_heads > 0
    if attends and model.out_bias != value:
        reason = "biases of the MLP and of the attention's output are one option, and the model has one of them"
        return not_expressible(reason, _WRITE_A_SPEC)
    if not value:
        bias_options: tuple[tuple[str, Any], ...] = (("add-qkv-bias", True),) if model.attention_bias else ()
        return Fragment((("disable-bias-linear", True), *bias_options))
    if attends and not model.attention_bias:
        return not_expressible(
            "biases of all products are one option, and the model has none on queries", _WRITE_A_SPEC
        )
    return None


def _positions(value: Any, question: CompleteQuestion) -> Written:
    longest = max(question.recipe.sequence_length, question.model.max_position_embeddings or 0)
    if value:
        return {"position-embedding-type": "learned_absolute", "max-position-embeddings": value}
    note = "the model's positions are taken to be rotary; say --position-embedding-type none where it has none"
    settings = (("position-embedding-type", "rope"), ("max-position-embeddings", longest))
    return Fragment(settings, assumptions=(note,))


def _layer_types(value: Any, question: CompleteQuestion) -> Written:
    """Options of periodic windows, or of gated delta nets between full attention; none for full attention."""
    model = question.model
    kinds = value or (("sliding_attention",) if model.sliding_window else ("full_attention",))
    distinct = {*kinds}
    every = len(kinds)
    ends_full = kinds[-1] == "full_attention" and len({*kinds[:-1]}) == 1
    if distinct == {"full_attention"}:
        return None
    if distinct == {"sliding_attention"}:
        return {"window-size": f"{(model.sliding_window or 1) - 1},0"}
    if distinct == {"sliding_attention", "full_attention"} and ends_full:
        window = ("window-size", f"{(model.sliding_window or 1) - 1},0")
        return Fragment((window, ("window-attn-skip-freq", every)))
    if distinct == {"gated_delta_net", "full_attention"} and ends_full:
        return {"experimental-attention-variant": "gated_delta_net", "linear-attention-freq": every}
    return not_expressible(_NOT_IN_OPTIONS, _WRITE_A_SPEC)


def _delta_net(value: Any, question: CompleteQuestion) -> Any:
    if value is None or "gated_delta_net" in question.model.layer_types:
        return value
    return not_expressible(_NOT_IN_OPTIONS, _WRITE_A_SPEC)


def _experts(value: Any, question: CompleteQuestion) -> Any:
    return value if value and question.model.num_experts else None


def sparse_layers(model: Model) -> list[int]:
    """1 for each layer with experts, else 0."""
    types = model.mlp_layer_types or ("sparse",)
    kinds_of_layers = [types[layer % len(types)] for layer in range(model.num_hidden_layers)]
    return [
        int(kind == "sparse" and layer >= model.first_k_dense_replace) for layer, kind in enumerate(kinds_of_layers)
    ]


def _moe_frequency(value: Any, question: CompleteQuestion) -> Written:
    model = question.model
    if not model.num_experts:
        not_dense = [kind for kind in model.mlp_layer_types if kind != "dense"]
        return not_expressible("layers without an MLP are written as a pattern", _WRITE_A_SPEC) if not_dense else None
    if {*model.mlp_layer_types} - {"dense", "sparse"}:
        return not_expressible("a layer has experts or a dense MLP, not both and not neither", _WRITE_A_SPEC)
    kinds = sparse_layers(model)
    return None if all(kinds) else {"moe-layer-freq": layer_list(kinds)}


MODEL_RULES = rules_of(
    framework_table("megatron", "model", "rules", "read")["model"],
    {
        "model.intermediate_size": lambda value, q: value or q.model.expert_width,
        "model.num_attention_heads": lambda value, _: max(1, value),
        "model.num_key_value_heads": _query_groups,
        "model.head_dim": _head_width,
        "model.mlp_bias": _biases,
        "model.position_embedding_rows": _positions,
        "model.attention_sinks": lambda value, _: "learnable" if value else None,
        "model.layer_types": _layer_types,
        **dict.fromkeys(_DELTA_NETS, _delta_net),
        "model.kv_lora_rank": lambda value, _: (
            None if value is None else {"multi-latent-attention": True, "kv-lora-rank": value}
        ),
        **dict.fromkeys(_LATENT_ATTENTION, _latent_attention),
        **dict.fromkeys(_EXPERTS, _experts),
        "model.mlp_layer_types": _moe_frequency,
        "model.num_nextn_predict_layers": lambda value, _: value or None,
    },
)


def chunk_layers(question: CompleteQuestion) -> tuple[int, ...]:
    """Layers of each chunk, in the order of the model."""
    layout = question.layout
    chunks = layout.pipeline * layout.virtual_pipeline
    return layout.stage_layers or (question.model.num_hidden_layers // chunks,) * chunks


_REQUIRED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
"""Fields that the arguments must state for a model."""

_FREQUENCY = re.compile(r"\(?(?:\[[01]\]\*\d{1,4}\+?){1,64}\)?")
_RUN = re.compile(r"\[([01])\]\*(\d{1,4})")

MOST_LAYERS = 2048
"""Most layers of a model."""


def put_model(draft: Draft) -> bool:
    """Set the draft's model if the arguments state it, and return whether it has experts."""
    sparse = bool(draft.get("num-experts"))
    options = options_of(MODEL_RULES)
    missing = [name for field in _REQUIRED if (name := options[f"model.{field}"].name) not in draft.settings]
    if missing:
        draft.assumptions.append(f"no model: the arguments do not say {', '.join(missing)}")
        return sparse
    stated = draft.fields_of(MODEL_RULES, "model")
    model = {field: value for field, value in stated.items() if value or value is False or field in _REQUIRED}
    model["intermediate_size"] = draft.get("ffn-hidden-size", 4 * model["hidden_size"])
    if draft.get("group-query-attention"):
        model["num_key_value_heads"] = draft.get("num-query-groups", 1)
    biased = not draft.get("disable-bias-linear")
    model |= {"attention_bias": biased or bool(draft.get("add-qkv-bias"))}
    model |= {"attention_out_bias": biased, "mlp_bias": biased}
    _put_attention(draft, model)
    if sparse:
        model["num_experts_per_tok"] = draft.get("moe-router-topk", 2)
        model["mlp_layer_types"] = _mlp_types(draft)
    else:
        del model["shared_expert_gate"]
    draft.model = model
    return sparse


def _put_attention(draft: Draft, model: dict[str, Any]) -> None:
    kind = draft.get("position-embedding-type", "learned_absolute")
    rows = draft.get("max-position-embeddings", draft.get("seq-length", 0))
    learned = kind == "learned_absolute" and not draft.get("use-rotary-position-embeddings")
    model["position_embedding_rows"] = rows if learned else 0
    if not learned and rows:
        model["max_position_embeddings"] = rows
    if draft.get("qk-layernorm") and not draft.get("multi-latent-attention"):
        model["qk_norm"] = "per_head_dim" if model["normalization"] == "rmsnorm" else "per_head_dim_biased"
    if draft.get("qk-l2-norm"):
        model["qk_norm"] = "l2"
    every = draft.get("window-attn-skip-freq", 1)
    if "window-size" in draft.settings:
        model["sliding_window"] = _window(draft)
        skipped = ["full_attention"] * (every > 1)
        model["layer_types"] = ["sliding_attention"] * max(1, min(every, MOST_LAYERS) - 1) + skipped
    if draft.get("experimental-attention-variant") == "gated_delta_net":
        nets = min(draft.get("linear-attention-freq", 1), MOST_LAYERS) - 1
        model["layer_types"] = ["gated_delta_net"] * nets + ["full_attention"]
    elif "experimental-attention-variant" in draft.settings:
        raise draft.wrong("experimental-attention-variant", "not_a_choice", "is not understood", "use gated_delta_net")


def _window(draft: Draft) -> int:
    first = draft.get("window-size").strip("()").split(",")[0].strip()
    if not (first.isascii() and first.isdecimal() and len(first) < 10):
        raise draft.wrong("window-size", "not_a_window", "is no window", "give two numbers, such as 4095,0")
    return int(first) + 1


def _mlp_types(draft: Draft) -> list[str]:
    pattern = draft.get("moe-layer-freq", "1").replace(" ", "")
    if pattern.isascii() and pattern.isdecimal() and 0 < int(pattern[:6]) <= MOST_LAYERS:
        return ["sparse"] + ["dense"] * (int(pattern[:6]) - 1)
    runs = _RUN.findall(pattern) if _FREQUENCY.fullmatch(pattern) else []
    kinds = ["sparse" if kind == "1" else "dense" for kind, count in runs for _ in range(int(count))]
    if not 0 < len(kinds) <= MOST_LAYERS:
        fix = "give a number, or a list such as ([0]*3+[1]*29)"
        raise draft.wrong("moe-layer-freq", "not_a_pattern", "is no pattern of layers", fix)
    return kinds


LONGEST_LAYOUT = 4096
"""Most characters of a pipeline layout without repetitions."""

MOST_PARTS = 1 << 12
"""Most chunks of all stages together."""

_GROUP = re.compile(r"\(([^()]*)\)(?:\*(\d{1,4}))?")
_SYMBOL = re.compile(r"([A-Za-z|])\*(\d{1,4})")
_WRITTEN_OUT = re.compile(r"[EtmL|]*")


def layers_of_layout(written: str) -> tuple[int, ...]:
    """Layers of each stage and chunk of a pipeline-model-parallel-layout, in the order of the model.

    >>> layers_of_layout("Et*3|(tt|)*6tmL")
    (3, 2, 2, 2, 2, 2, 2, 1)
    >>> layers_of_layout("Et*2|(tt|)*2t|tmL")
    (2, 2, 2, 1, 1)
    """
    text = written.replace(",", "").replace(" ", "")
    for pattern in (_GROUP, _SYMBOL):
        while len(text) <= LONGEST_LAYOUT and pattern.search(text):
            text = _repeated(pattern, text)
    if len(text) > LONGEST_LAYOUT:
        raise NotExpressible("flag pipeline-model-parallel-layout: too long")
    if not _WRITTEN_OUT.fullmatch(text):
        raise NotExpressible("flag pipeline-model-parallel-layout: not understood")
    return tuple(stage.count("t") for stage in text.split("|"))


def _repeated(pattern: re.Pattern[str], text: str) -> str:
    """A layout with its innermost repetitions expanded, cut once it exceeds LONGEST_LAYOUT."""
    parts: list[str] = []
    length = end = 0
    for match in pattern.finditer(text):
        times = min(int(match[2] or 1), LONGEST_LAYOUT)
        parts += (text[end : match.start()], match[1] * times)
        length += len(parts[-2]) + len(parts[-1])
        end = match.end()
        if length > LONGEST_LAYOUT:
            return "".join(parts)
    return "".join((*parts, text[end:]))


def layers_with_ends(layers: int, parts: int, first: int | None, last: int | None) -> tuple[int, ...]:
    """Layers of each part of a pipeline whose first or last part has a number of its own.

    >>> layers_with_ends(12, 4, 2, None)
    Traceback (most recent call last):
    ...
    service.calibration.tables.NotExpressible: layers: no even split over the pipeline
    >>> layers_with_ends(12, 4, 2, 2)
    (2, 4, 4, 2)
    """
    ends = [count for count in (first, last) if count is not None]
    inner, inner_layers = parts - len(ends), layers - sum(ends)
    if not 1 <= inner <= MOST_PARTS or inner_layers < 0 or inner_layers % inner:
        raise NotExpressible("layers: no even split over the pipeline")
    middle = (inner_layers // inner,) * inner
    return (*(() if first is None else (first,)), *middle, *(() if last is None else (last,)))


def even_chunks(stage_layers: Sequence[int], stages: int) -> int:
    """Chunks of each stage in a list of the layers of all chunks.

    >>> even_chunks((3, 2, 2, 2), 2)
    2
    """
    if len(stage_layers) % stages:
        raise NotExpressible("flag pipeline-model-parallel-layout: not a whole number of chunks for each stage")
    return len(stage_layers) // stages
