"""Megatron-LM: the arguments of pretrain_gpt.py, its model's and pipeline layouts among them.

Source: NVIDIA/Megatron-LM@d98e8a64 (core 0.20.0) megatron/training/arguments.py, its defaults included, and the
configurations that its groups of options are made of: transformer_config.py, model_parallel_config.py,
optimizer_config.py, training_config.py, pipeline_parallel_layer_layout.py.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from service.calibration.tables import NotExpressible
from service.estimator.complete import CompleteQuestion
from service.estimator.degrees import WEIGHTS
from service.estimator.question import Model
from service.estimator.software.precision import PRECISIONS, SHORT_NAMES, decouples_gradients
from service.estimator.software.stacks import STACKS, implementation_of, software_of
from service.formats import drafts, rules
from service.formats.model_names import changed_model, named_model
from service.formats.text import Entry, command_text, words_of

_WRITE_A_SPEC = "write the layer in a spec of your own and name it by --spec"
_NOT_IN_OPTIONS = "options give such layers no place; they are written as a pattern or as a spec"


def layer_list(kinds: list[int]) -> str:
    """A list of 0 and 1, one for each layer, in the form of moe-layer-freq.

    >>> layer_list([0, 1, 1])
    '([0]*1+[1]*2)'
    """
    return f"({'+'.join(f'[{kind}]*{len(list(run))}' for kind, run in groupby(kinds))})"


_LATENT_ATTENTION = ("model.q_lora_rank", "model.qk_nope_head_dim", "model.qk_rope_head_dim", "model.v_head_dim")
_DELTA_NETS = (
    "model.conv_kernel", "model.linear_num_key_heads", "model.linear_num_value_heads", "model.linear_key_head_dim",
    "model.linear_value_head_dim",
)  # fmt: skip
_EXPERTS = (
    "model.num_experts", "model.num_experts_per_tok", "model.moe_intermediate_size",
    "model.shared_expert_intermediate_size",
)  # fmt: skip


def _query_groups(value: Any, question: CompleteQuestion) -> rules.Written:
    latent = question.model.kv_lora_rank is not None
    if value is None or latent or value == question.model.num_attention_heads:
        return None
    return {"group-query-attention": True, "num-query-groups": value}


def _head_width(value: Any, question: CompleteQuestion) -> Any:
    model = question.model
    is_default = model.num_attention_heads and model.num_attention_heads * (value or 0) == model.hidden_size
    return None if is_default or model.kv_lora_rank is not None else value


def _biases(value: Any, question: CompleteQuestion) -> rules.Written:
    """Biases of the MLP and of the attention's output share an option; those of queries, keys, values have another."""
    model = question.model
    attends = model.num_attention_heads > 0
    if attends and model.out_bias != value:
        reason = "biases of the MLP and of the attention's output are one option, and the model has one of them"
        return rules.not_expressible(reason, _WRITE_A_SPEC)
    if not value:
        bias_options: tuple[tuple[str, Any], ...] = (("add-qkv-bias", True),) if model.attention_bias else ()
        return rules.Fragment((("disable-bias-linear", True), *bias_options))
    if attends and not model.attention_bias:
        return rules.not_expressible(
            "biases of all products are one option, and the model has none on queries", _WRITE_A_SPEC
        )
    return None


def _positions(value: Any, question: CompleteQuestion) -> rules.Written:
    longest = max(question.recipe.sequence_length, question.model.max_position_embeddings or 0)
    if value:
        return {"position-embedding-type": "learned_absolute", "max-position-embeddings": value}
    note = "the model's positions are taken to be rotary; say --position-embedding-type none where it has none"
    settings = (("position-embedding-type", "rope"), ("max-position-embeddings", longest))
    return rules.Fragment(settings, assumptions=(note,))


def _layer_types(value: Any, question: CompleteQuestion) -> rules.Written:
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
        return rules.Fragment((window, ("window-attn-skip-freq", every)))
    if distinct == {"gated_delta_net", "full_attention"} and ends_full:
        return {"experimental-attention-variant": "gated_delta_net", "linear-attention-freq": every}
    return rules.not_expressible(_NOT_IN_OPTIONS, _WRITE_A_SPEC)


def _delta_net(value: Any, question: CompleteQuestion) -> Any:
    if value is None or "gated_delta_net" in question.model.layer_types:
        return value
    return rules.not_expressible(_NOT_IN_OPTIONS, _WRITE_A_SPEC)


def sparse_layers(model: Model) -> list[int]:
    """1 for each layer with experts, else 0."""
    types = model.mlp_layer_types or ("sparse",)
    kinds_of_layers = [types[layer % len(types)] for layer in range(model.num_hidden_layers)]
    return [
        int(kind == "sparse" and layer >= model.first_k_dense_replace) for layer, kind in enumerate(kinds_of_layers)
    ]


def _moe_frequency(value: Any, question: CompleteQuestion) -> rules.Written:
    model = question.model
    if not model.num_experts:
        not_dense = [kind for kind in model.mlp_layer_types if kind != "dense"]
        return (
            rules.not_expressible("layers without an MLP are written as a pattern", _WRITE_A_SPEC)
            if not_dense
            else None
        )
    if {*model.mlp_layer_types} - {"dense", "sparse"}:
        return rules.not_expressible("a layer has experts or a dense MLP, not both and not neither", _WRITE_A_SPEC)
    kinds = sparse_layers(model)
    return None if all(kinds) else {"moe-layer-freq": layer_list(kinds)}


TABLE = rules.framework_table("megatron_core/megatron", "model", "rules", *drafts.FATES, "earlier")

MODEL_RULES = rules.rules_of(
    TABLE["model"],
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
        **dict.fromkeys(_LATENT_ATTENTION, lambda value, q: value if q.model.kv_lora_rank is not None else None),
        **dict.fromkeys(_EXPERTS, lambda value, q: value if value and q.model.num_experts else None),
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

_FREQUENCY = re.compile(r"\(?(?:\[[01]\]\*\d{1,4}\+?){1,64}\)?")
_RUN = re.compile(r"\[([01])\]\*(\d{1,4})")

MOST_LAYERS = 2048

_RAMP, _MOST_DIGITS = 3, 14
"""Numbers of a rising batch, and digits of each."""


def put_model(draft: drafts.Draft) -> bool:
    """Set the draft's model if the arguments state it, and return whether it has experts."""
    sparse = bool(draft.get("num-experts"))
    _put_vocabulary(draft)
    options = rules.options_of(MODEL_RULES)
    missing = [name for field in _REQUIRED if (name := options[f"model.{field}"].name) not in draft.settings]
    if missing:
        draft.assumptions.append(f"no model: the arguments do not say {', '.join(missing)}")
        return sparse
    stated = draft.fields_of(MODEL_RULES, "model")
    model = {field: value for field, value in stated.items() if value or value is False or field in _REQUIRED}
    if draft.get("quick-geglu"):
        model["gated_mlp"] = True
    model["intermediate_size"] = draft.get("ffn-hidden-size") or _usual_mlp_width(draft, model["hidden_size"])
    for name in _PADDED & draft.settings.keys():
        model["vocab_size"] = draft.settings[name]
    if draft.get("group-query-attention"):
        model["num_key_value_heads"] = draft.get("num-query-groups", 1)
    biased = not draft.get("disable-bias-linear")
    model |= {"attention_bias": biased or bool(draft.get("add-qkv-bias"))}
    model |= {"attention_out_bias": biased, "mlp_bias": biased}
    _put_attention(draft, model)
    if sparse:
        model["num_experts_per_tok"] = draft.get("moe-router-topk", 2)
        try:
            model["mlp_layer_types"] = mlp_types_of(draft.get("moe-layer-freq", "1"))
        except NotExpressible:
            fix = "give a number, or a list such as ([0]*3+[1]*29)"
            raise draft.wrong("moe-layer-freq", "not_a_pattern", "is no pattern of layers", fix) from None
    else:
        for name in (*_EXPERTS, "model.shared_expert_gate"):
            model.pop(name.removeprefix("model."), None)
    draft.model = model
    return sparse


_PADDED = {"padded-vocab-size", "pad-vocab-size-to"}
"""Options that give the rows of the embedding; the second is bigscience's."""

_VOCABULARIES = {"GPT2BPETokenizer": ("GPT-2", 50257), "Llama2Tokenizer": ("Llama 2", 32000)}
"""Tokens of the vocabularies that tokenizers were made for. Source: vocab.json of GPT-2, tokenizer.model of Llama 2."""


def _put_vocabulary(draft: drafts.Draft) -> None:
    """Set the vocabulary that the tokenizer has, where the arguments give no size."""
    for name in _PADDED & draft.settings.keys():
        draft.settings.setdefault("vocab-size", draft.settings[name])
    kind = _spelled(draft, "tokenizer-type") or ("GPT2BPETokenizer" if "vocab-file" in draft.fates else None)
    if kind is None or "vocab-size" in draft.settings:
        return
    named, size = _VOCABULARIES.get(kind, (_spelled(draft, "tokenizer-model"), None))
    if kind == "HuggingFaceTokenizer" and named is not None and (model := named_model(named).model) is not None:
        size = model.vocab_size
    if size is not None:
        draft.settings["vocab-size"] = size
        draft.assumptions.append(f"the vocabulary is taken for that of {named}: {size} tokens")


def _spelled(draft: drafts.Draft, name: str) -> str | None:
    """The one word of a setting whose value is known."""
    word = draft.fates[name].entry.word if name in draft.fates else None
    return word if isinstance(word, str) else None


_SIZES = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
)  # fmt: skip


def _put_named_model(draft: drafts.Draft, slug: str, without: Sequence[str]) -> bool:
    """Set a model of the catalogue with the sizes that options change, and return whether it has experts."""
    changes: dict[str, Any] = {}
    for path, option in rules.options_of(MODEL_RULES).items():
        field = path.removeprefix("model.")
        if option.name in draft.settings and field in _SIZES:
            changes[field] = draft.settings[option.name]
        elif option.name in draft.settings:
            draft.not_understood(option.name, "it changes the model that is named")
    model = named_model(slug).model
    if model is not None:
        draft.settings.setdefault("num-layers", model.num_hidden_layers)
    draft.model = changed_model(slug, without, changes)
    return bool(model and changes.get("num_experts", model.num_experts))


def _usual_mlp_width(draft: drafts.Draft, hidden: int) -> int:
    """Width of the MLP without ffn-hidden-size: two thirds where swiglu gates it, so that parameters are as many."""
    return int((4 * hidden * 2 / 3) / 64) * 64 if draft.get("swiglu") else 4 * hidden


def _put_latent_attention(draft: drafts.Draft, model: dict[str, Any]) -> None:
    """Sizes of latent attention with their defaults, or none of them where it is off."""
    names = [path.removeprefix("model.") for path in ("model.kv_lora_rank", *_LATENT_ATTENTION)]
    if not draft.get("multi-latent-attention"):
        for name in names:
            if model.pop(name, None) is not None:
                option = rules.options_of(MODEL_RULES)[f"model.{name}"].name
                draft.without_effect(option, "it applies to latent attention, which is off")
        return
    usual = {"kv_lora_rank": 32, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    model.update(usual | {name: model[name] for name in names if name in model})


def _put_attention(draft: drafts.Draft, model: dict[str, Any]) -> None:
    _put_latent_attention(draft, model)
    kind = draft.get("position-embedding-type", "learned_absolute")
    rows = draft.get("max-position-embeddings", draft.get("seq-length", 0))
    learned = kind == "learned_absolute" and not draft.get("use-rotary-position-embeddings")
    model["position_embedding_rows"] = rows if learned else 0
    if not learned and rows:
        model["max_position_embeddings"] = rows
    if draft.get("apply-layernorm-1p") and model["normalization"] == "rmsnorm":
        model["normalization"] = "rmsnorm_1p"
    if draft.get("qk-layernorm") and not draft.get("multi-latent-attention"):
        model["qk_norm"] = "per_head_dim" if model["normalization"].startswith("rmsnorm") else "per_head_dim_biased"
    if draft.get("qk-l2-norm"):
        model["qk_norm"] = "l2"
    every = draft.get("window-attn-skip-freq", 1)
    if "window-size" in draft.settings:
        first = draft.get("window-size").strip("()").split(",")[0].strip()
        if not (first.isascii() and first.isdecimal() and len(first) < 10):
            raise draft.wrong("window-size", "not_a_window", "is no window", "give two numbers, such as 4095,0")
        model["sliding_window"] = int(first) + 1
        skipped = ["full_attention"] * (every > 1)
        model["layer_types"] = ["sliding_attention"] * max(1, min(every, MOST_LAYERS) - 1) + skipped
    _put_delta_nets(draft, model)


def _put_delta_nets(draft: drafts.Draft, model: dict[str, Any]) -> None:
    """Gated delta nets between full attention, or none of their sizes without them."""
    if draft.get("experimental-attention-variant") == "gated_delta_net":
        nets = min(draft.get("linear-attention-freq", 1), MOST_LAYERS) - 1
        model["layer_types"] = ["gated_delta_net"] * nets + ["full_attention"]
        return
    if "experimental-attention-variant" in draft.settings:
        raise draft.wrong("experimental-attention-variant", "not_a_choice", "is not understood", "use gated_delta_net")
    for path in _DELTA_NETS:
        if model.pop(path.removeprefix("model."), None) is not None:
            option = rules.options_of(MODEL_RULES)[path].name
            draft.without_effect(option, "it applies to gated delta nets, of which the model has none")


def mlp_types_of(pattern: str) -> list[str]:
    """MLP kinds of a moe-layer-freq: a number N for every N-th layer, or a list.

    >>> mlp_types_of("2"), mlp_types_of("([0]*1+[1]*2)")
    (['sparse', 'dense'], ['dense', 'sparse', 'sparse'])
    """
    text = pattern.replace(" ", "")
    if text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= MOST_LAYERS:
        return ["sparse"] + ["dense"] * (int(text[:6]) - 1)
    runs = _RUN.findall(text) if _FREQUENCY.fullmatch(text) else []
    kinds = ["sparse" if kind == "1" else "dense" for kind, count in runs for _ in range(int(count))]
    if not 0 < len(kinds) <= MOST_LAYERS:
        raise NotExpressible("flag moe-layer-freq: not understood")
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


_TWO_LEVELS = "a2a+p2p"
"""Exchange of context ranks in groups. Source: NVIDIA/Megatron-LM@d98e8a64 core/transformer/transformer_config.py."""

CONTEXT_METHODS: Mapping[str, str] = TABLE["rules"]["layout.context_method"]["choices"]

SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO stages of data-parallel-sharding-strategy."""

FP8_RECIPES = {
    "delayed": "fp8-tensorwise", "tensorwise": "fp8-tensorwise", "blockwise": "fp8-blockwise", "mxfp8": "mxfp8",
}  # fmt: skip

FUSED_LOSSES = {"native": "fused", "te": "transformer-engine"}

DTYPES = {name: name for name in ("fp32", "bf16", "fp16", "fp8")}
"""Formats of the optimizer's states."""

_STAGES_FIRST = "tp-cp-ep-pp-dp"

_OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")


def _stage_layout(value: Any, question: CompleteQuestion) -> str | None:
    """Layout, a bar between chunks: E is the embedding, t a layer, m a prediction depth, and L the loss."""
    if not rules.has_custom_split(question):
        return None
    chunks = [f"t*{layers}" if layers else "" for layers in value]
    chunks[0] = f"E,{chunks[0]}".rstrip(",")
    depths = question.model.num_nextn_predict_layers
    chunks[-1] = f"{chunks[-1]},{f'm*{depths},' if depths else ''}L".lstrip(",")
    return "|".join(chunks)


def _sharding(value: Any, question: CompleteQuestion) -> rules.Written:
    if value == 0:
        return None
    fsdp = {"use-megatron-fsdp": True, "data-parallel-sharding-strategy": list(SHARDING)[value]}
    distributed = {"use-distributed-optimizer": True}
    return distributed if value == 1 else {**fsdp, **distributed, "ckpt-format": "fsdp_dtensor"}


def _offload(value: Any, question: CompleteQuestion) -> rules.Written:
    has_cuda_graphs = software_of(question.recipe).cuda_graphs
    optimizer = {"optimizer-cpu-offload": True, "use-precision-aware-optimizer": True}
    activations: dict[str, Any] = {"fine-grained-activation-offloading": True, "offload-modules": _OFFLOADED}
    activations |= {"fine-grained-offloading-max-inflight-offloads": 1} if has_cuda_graphs else {}
    options = {"none": {}, "optimizer": optimizer, "activations": activations}
    options["optimizer-and-activations"] = optimizer | activations
    if value == "moments":
        return rules.not_expressible(
            "Megatron-LM's own arguments offload the master copy along with the moments", "offload the optimizer"
        )
    if value not in options:
        return rules.not_expressible("weights stay on the GPU, sharded or not", "offload the optimizer alone")
    return options[value]


def _unless_default(default: Any) -> rules.Writer:
    """Writer of values other than the default, where the question does not list the layers of each stage."""
    return lambda value, q: None if value == default or rules.has_custom_split(q) else value


def _expert_tensor(value: Any, question: CompleteQuestion) -> int | None:
    """None without experts, unless stages are numbered first: expert ranks must then fill a stage of a replica."""
    layout = question.layout
    if question.model.num_experts:
        return int(value)
    is_required = layout.rank_order == _STAGES_FIRST and layout.pipeline > 1 and layout.context > 1
    return layout.tensor * layout.context if is_required else None


_USE_ANOTHER = "choose a value that Megatron-LM has, or extend its training script"

_ATTENTION: dict[str, dict[str, Any]] = {
    "flash": {},
    "eager": {"attention-backend": "unfused"},
    "cudnn": {"attention-backend": "fused"},
    **{f"flash-{version}": {"attention-backend": "flash", "flash-attention-version": version} for version in (2, 3, 4)},
}

_LOSSES: dict[str, dict[str, Any]] = {"vocab-parallel": {}, "fused": {"cross-entropy-loss-fusion": True}}


def _samples(value: Any, question: CompleteQuestion) -> rules.Written:
    if value is None:
        note = "the question names no training_tokens, so add --train-iters or --train-samples"
        return rules.Fragment(assumptions=(note,))
    return rules.counted("train-samples", value, question.recipe.sequence_length)


def _gradients(value: Any, question: CompleteQuestion) -> rules.Written:
    if value == "fp16":
        note = "gradients are in fp16 as --fp16 does without --accumulate-allreduce-grads-in-fp32"
        return rules.Fragment(assumptions=(note,))
    return {"grad-reduce-in-bf16" if value == "bf16" else "accumulate-allreduce-grads-in-fp32": True}


def _recompute(value: Any, question: CompleteQuestion) -> rules.Written:
    granularity = {"recompute-granularity": value.granularity}
    if value.granularity == "none":
        return None
    if value.granularity == "selective":
        if "op" in value.modules:
            return rules.not_expressible("recompute by operation is another stack's", "name modules, such as core_attn")
        return {**granularity, "recompute-modules": value.modules} if value.modules else granularity
    layers = value.layers or (1 if value.method == "uniform" else max(chunk_layers(question)))
    return {**granularity, "recompute-method": value.method, "recompute-num-layers": layers}


def _moments(value: Any, question: CompleteQuestion) -> rules.Written:
    return value and {"use-precision-aware-optimizer": True, "exp-avg-dtype": value, "exp-avg-sq-dtype": value}


def _master_weights(value: Any, question: CompleteQuestion) -> rules.Written:
    if value == "bf16":
        return rules.not_expressible("the master copy is in fp32 or fp16", "leave master_dtype out")
    return value and {"use-precision-aware-optimizer": True, "main-params-dtype": value}


def _copies_gradients(question: CompleteQuestion) -> bool:
    """Whether the file can say that the optimizer reads fp32 copies of gradients, or that is usual."""
    recipe = question.recipe
    is_usual = not (recipe.moment_dtype or recipe.master_dtype)
    is_chosen = recipe.optimizer == "adamw" and recipe.precision != "fp32"
    return (is_usual or is_chosen) and not question.layout.offload.startswith("optimizer")


def decoupling(usual: str) -> rules.Writer:
    """Writer of a precision-aware optimizer, in a tool that gives it a recipe of fp8 even where nothing is in fp8."""

    def write(value: Any, question: CompleteQuestion) -> rules.Written:
        recipe = question.recipe
        if value is False and not _copies_gradients(question):
            why = "options choose that for AdamW on the GPU with weights in few bits alone"
            return rules.not_expressible(why, "leave decoupled_gradients out")
        precision = PRECISIONS[SHORT_NAMES.get(recipe.precision, recipe.precision)]
        decoupled = decouples_gradients(precision, recipe, STACKS["megatron-core"])
        options = {"use-precision-aware-optimizer": True} if decoupled else {}
        if recipe.master_dtype == "fp16" or not (decoupled or recipe.master_dtype or recipe.moment_dtype):
            return options
        scaling = "delayed" if decoupled else "tensorwise"
        if precision.matrix_format != "fp8":
            return options if scaling == usual else options | {"fp8-recipe": scaling}
        return options and rules.not_expressible(
            f"with the scaling of {recipe.precision} Megatron-Core holds fp32 masters and copies gradients to fp32",
            "leave decoupled_gradients out",
        )

    return write


def _expert_overlap(value: Any, question: CompleteQuestion) -> Any:
    if value and question.layout.pipeline > 1 and question.layout.virtual_pipeline == 1:
        return rules.not_expressible(
            "Megatron-LM runs one micro-batch beside another in a pipeline only where stages have several chunks",
            "set virtual_pipeline above 1, or leave expert_overlap out",
        )
    return value or None


def _overlaps(value: Any, question: CompleteQuestion) -> bool:
    """Whether gradients are reduced beside the backward pass, as asked or as the layers do."""
    return bool(implementation_of(software_of(question.recipe)).overlap.hides_gradients if value is None else value)


def _overlapped_gather(value: Any, question: CompleteQuestion) -> Any:
    reduces = _overlaps(software_of(question.recipe).overlap_reduce, question)
    return ((reduces if value is None else value) and question.layout.zero_stage > 0) or None


def _kernel(value: Any, question: CompleteQuestion) -> rules.Written:
    if software_of(question.recipe).implementation == "local" and value.startswith("flash"):
        own = {"use-flash-attn": True}
        why = "Megatron-LM's own layers run the FlashAttention that is installed"
        return own if value == "flash" else rules.combined(own, rules.not_expressible(why, "install that version"))
    return rules.chooses(_ATTENTION, "Megatron-LM has no option for the kernel {value}", _USE_ANOTHER)(value, question)


def _loss(value: Any, question: CompleteQuestion) -> rules.Written:
    if value == "transformer-engine":
        return rules.not_expressible(
            "Megatron-LM turned Transformer Engine's cross entropy off in Megatron-Core 0.19",
            "use vocab-parallel or fused, or leave cross_entropy out",
        )
    return rules.chooses(_LOSSES, "Megatron-LM has no loss of the kind {value}", _USE_ANOTHER)(value, question)


def environment_of(question: CompleteQuestion) -> dict[str, str]:
    """Environment of Megatron-LM. Source: NVIDIA/Megatron-LM@d98e8a64 megatron/training/arguments.py validate_args."""
    variables = {} if question.layout.zero_stage >= 2 else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    if question.layout.offload in ("activations", "optimizer-and-activations"):
        variables["NVTE_CPU_OFFLOAD_V1"] = "1"
    return variables


def environment_notes(question: CompleteQuestion) -> list[str]:
    """Note that names the variables of `environment_of`."""
    variables = " ".join(f"{name}={value}" for name, value in environment_of(question).items())
    return [f"it runs with {variables} in its environment"] if variables else []


RULES: rules.Rules = {
    **MODEL_RULES,
    **rules.COMMON_RULES,
    **rules.rules_of(
        TABLE["rules"],
        {
            "recipe.training_tokens": _samples,
            "recipe.gradient_dtype": _gradients,
            "recipe.recompute": _recompute,
            "recipe.attention": _kernel,
            "recipe.dropout_fraction": lambda value, _: {"attention-dropout": value, "hidden-dropout": value},
            "recipe.moment_dtype": _moments,
            "recipe.master_dtype": _master_weights,
            "recipe.stack.decoupled_gradients": decoupling("delayed"),
            "recipe.stack.cross_entropy": _loss,
            "recipe.stack.grouped_experts": lambda value, q: True if value and q.model.num_experts else None,
            "recipe.stack.tensor_overlap": lambda value, q: (
                (value and q.layout.tensor > 1 and q.layout.sequence_parallel) or None
            ),
            "recipe.stack.overlap_reduce": lambda value, q: _overlaps(value, q) or None,
            "recipe.stack.overlap_gather": _overlapped_gather,
            "recipe.stack.cuda_graphs": rules.chooses(
                {False: {}, True: {"cuda-graph-impl": "full_iteration", "no-check-for-nan-in-loss-and-grad": True}},
                "",
                "",
            ),
            "recipe.stack.expert_overlap": _expert_overlap,
            "recipe.stack.dispatcher": lambda value, q: (value or "alltoall") if q.model.num_experts else None,
            "layout.data": rules.DATA_FROM_PROCESSES,
            "layout.virtual_pipeline": _unless_default(1),
            "layout.expert_tensor": _expert_tensor,
            "layout.zero_stage": _sharding,
            "layout.shard_group": lambda value, q: (
                None
                if rules.shards_over_all(value, q)
                else {"num-distributed-optimizer-instances": q.layout.data * q.layout.context // value}
            ),
            "layout.reshard_after_forward": lambda value, q: q.layout.zero_stage != 3 or value,
            "layout.context_method": lambda value, q: (
                None if q.layout.context == 1 else next(name for name, one in CONTEXT_METHODS.items() if one == value)
            ),
            "layout.virtual_group": lambda value, q: None if value == q.layout.pipeline else value,
            "layout.stage_layers": _stage_layout,
            "layout.embedding_in_split": _unless_default(default=False),
            "layout.loss_in_split": _unless_default(default=False),
            "layout.offload": _offload,
        },
    ),
}

FATES = drafts.fates_of(RULES, TABLE)


def read_megatron(entries: Sequence[Entry]) -> drafts.Draft:
    """Draft of Megatron-LM's arguments."""
    return complete(drafts.draft_of(entries, FATES))


def complete(draft: drafts.Draft, slug: str = "", without: Sequence[str] = ()) -> drafts.Draft:
    """Complete a draft with what Megatron-LM makes of the options in its settings, or with a model of the catalogue."""
    sparse = _put_named_model(draft, slug, without) if slug else put_model(draft)
    _put_layout(draft, sparse=sparse)
    _put_stages(draft)
    _put_recipe(draft)
    _put_precision(draft)
    selects = draft.get("recompute-activations") or draft.get("moe-layer-recompute")
    usual = "full" if draft.get("checkpoint-activations") else "selective" if selects else "none"
    granularity = draft.get("recompute-granularity", usual)
    recompute: dict[str, Any] = {"granularity": granularity}
    if granularity == "full":
        recompute["method"] = draft.get("recompute-method", "uniform")
        recompute["layers"] = draft.get("recompute-num-layers", draft.get("checkpoint-num-layers", 1))
    elif granularity == "selective":
        modules = draft.get("recompute-modules", ("core_attn",))
        recompute["modules"] = list(dict.fromkeys((*modules, *(("moe",) if draft.get("moe-layer-recompute") else ()))))
    draft.recipe["recompute"] = recompute if granularity != "none" else "none"
    _put_software(draft, sparse=sparse)
    draft.assumptions.append(f"the number of processes is not in the arguments: {drafts.FROM_GPUS}")
    return draft


def _put_layout(draft: drafts.Draft, *, sparse: bool) -> None:
    layout = draft.layout
    layout |= draft.fields_of(RULES, "layout")
    if sparse:
        layout.setdefault("expert_tensor", layout["tensor"])
    else:
        layout.pop("expert_tensor", None)
    stage = draft.chosen("data-parallel-sharding-strategy", SHARDING, "optim_grads_params")
    sharded = int(draft.get("use-distributed-optimizer", False))
    layout["zero_stage"] = stage if draft.get("use-megatron-fsdp") else sharded
    if draft.get("use-torch-fsdp2"):
        layout["zero_stage"] = WEIGHTS
        layout["reshard_after_forward"] = not draft.get("torch-fsdp2-no-reshard-after-forward")
    if not draft.get("use-megatron-fsdp"):
        draft.without_effect("data-parallel-sharding-strategy", "it applies to Megatron-FSDP, which is off")
    layout["sequence_parallel"] &= layout["tensor"] > 1
    if layout["context"] > 1:
        layout["context_method"] = draft.chosen("cp-comm-type", {**CONTEXT_METHODS, _TWO_LEVELS: "ring"}, "p2p")
        if draft.get("cp-comm-type") == _TWO_LEVELS:
            draft.not_understood("cp-comm-type", "context ranks exchange heads within groups, and keys between them")
    optimizer, activations = draft.get("optimizer-cpu-offload"), draft.get("fine-grained-activation-offloading")
    kind = "optimizer-and-activations" if optimizer and activations else "activations"
    states = "optimizer" if draft.get("use-precision-aware-optimizer") else "moments"
    layout["offload"] = kind if activations else states if optimizer else "none"
    if activations and {*draft.get("offload-modules", _OFFLOADED)} != {*_OFFLOADED}:
        draft.not_understood("offload-modules", f"activations of other modules than {', '.join(_OFFLOADED)} are kept")
    if draft.get("num-distributed-optimizer-instances", 1) > 1 and layout["zero_stage"] > 0:
        draft.shard_groups = draft.get("num-distributed-optimizer-instances")


def _put_stages(draft: drafts.Draft) -> None:
    layout, stages = draft.layout, draft.layout["pipeline"]
    layers_each, layers = draft.get("num-layers-per-virtual-pipeline-stage"), draft.get("num-layers")
    if layers_each and layers:
        layout["virtual_pipeline"] = max(1, layers // (stages * layers_each))
    option = "pipeline-model-parallel-layout"
    if draft.get(option):
        try:
            parts = layers_of_layout(draft.get(option))
            layout.update(stage_layers=list(parts), virtual_pipeline=even_chunks(parts, max(1, stages)))
        except NotExpressible:
            fix = "write E, t, m, L and bars, as many parts as stages times chunks"
            raise draft.wrong(option, "not_a_layout", "is no layout of the stages", fix) from None
    _put_ends(draft)
    if not layout.get("virtual_group") or layout["virtual_pipeline"] <= 1:
        layout.pop("virtual_group", None)


def _put_ends(draft: drafts.Draft) -> None:
    """Layers of each stage where the first or the last has a number of its own."""
    names = [f"decoder-{end}-pipeline-num-layers" for end in ("first", "last")]
    first, last = (draft.get(name) for name in names)
    layout, layers = draft.layout, draft.get("num-layers")
    given = names[0] if first is not None else names[1]
    if first is None and last is None:
        return
    if layout["virtual_pipeline"] > 1 or layers is None:
        draft.not_understood(given, "the stages at the ends hold other numbers of layers")
        return
    try:
        layout["stage_layers"] = list(layers_with_ends(layers, layout["pipeline"], first, last))
    except NotExpressible:
        fix = "leave the stages between as many layers each"
        raise draft.wrong(given, "layers_split", "leaves layers that no even split fits", fix) from None


def _put_recipe(draft: drafts.Draft) -> None:
    recipe = draft.recipe
    recipe |= draft.fields_of(RULES, "recipe")
    length, batch = recipe.get("sequence_length"), recipe.get("global_batch")
    if length and "train-samples" in draft.settings:
        recipe["training_tokens"] = float(draft.get("train-samples") * length)
    elif length and batch and "train-iters" in draft.settings:
        recipe["training_tokens"] = float(draft.get("train-iters") * batch * length)
    else:
        draft.training_steps = draft.get("train-iters")
    if not batch:
        draft.accumulation_steps = 1
    if _PADDED & draft.settings.keys() or draft.get("no-pad-vocab-size") or draft.get("disable-pad-vocab-size"):
        recipe["vocabulary_multiple"] = 1
    if recipe["optimizer"] == "sgd-momentum" and draft.get("sgd-momentum", 0.9) == 0:
        recipe["optimizer"] = "sgd"
    if recipe.get("expert_capacity_factor", 0) < 0:
        del recipe["expert_capacity_factor"]  # no capacity
    _put_ramp(draft)
    recipe["dropout_fraction"] = max(draft.get("attention-dropout", 0.1), draft.get("hidden-dropout", 0.1))


def _put_ramp(draft: drafts.Draft) -> None:
    """The stage of the run in which the batch rises: its first size, what it grows by, and samples of the stage."""
    name, recipe = "rampup-batch-size", draft.recipe
    if name not in draft.settings:
        return
    words = [str(word).replace("_", "") for word in draft.get(name)]
    numbers = [int(word) for word in words if word.isdecimal() and len(word) < _MOST_DIGITS]
    if len(numbers) != len(draft.get(name)) or len(numbers) != _RAMP:
        fix = "give the first batch, what it grows by, and the samples of the ramp"
        raise draft.wrong(name, "not_a_ramp", "is not three whole numbers", fix)
    first, increment, samples = numbers
    length, batch = recipe.get("sequence_length"), recipe.get("global_batch")
    if not length or not batch or samples * length >= recipe.get("training_tokens", 0):
        draft.not_understood(name, "the batch rises over a run whose tokens are not in the arguments")
        return
    stage = {"until_tokens": float(samples * length), "global_batch": first}
    recipe["stages"] = [stage | {"final_global_batch": batch, "batch_increment": increment}]


def _put_precision(draft: drafts.Draft) -> None:
    recipe = draft.recipe
    precision = "fp16-mixed" if draft.get("fp16") else "bf16-mixed" if draft.get("bf16") else "fp32"
    if "fp8-format" in draft.settings:
        precision = draft.chosen("fp8-recipe", FP8_RECIPES, "delayed")
    if "fp4-format" in draft.settings:
        precision = draft.chosen("fp4-recipe", {"nvfp4": "nvfp4"}, "nvfp4")
    recipe["precision"] = precision
    in_fp16 = precision == "fp16-mixed" and not draft.get("accumulate-allreduce-grads-in-fp32")
    recipe["gradient_dtype"] = "bf16" if draft.get("grad-reduce-in-bf16") else "fp16" if in_fp16 else "fp32"
    if draft.get("use-precision-aware-optimizer"):
        for name, option in (("moment_dtype", "exp-avg-dtype"), ("master_dtype", "main-params-dtype")):
            if option in draft.settings:
                recipe[name] = draft.chosen(option, DTYPES, "fp32")
        if draft.get("exp-avg-sq-dtype", "fp32") != draft.get("exp-avg-dtype", "fp32"):
            for option in draft.fates.keys() & {"exp-avg-dtype", "exp-avg-sq-dtype"}:
                draft.not_understood(option, "the two moments are in different formats")


def _put_software(draft: drafts.Draft, *, sparse: bool) -> None:
    stack = {"name": "megatron-core", **draft.fields_of(RULES, "recipe.stack")}
    fused = draft.chosen("cross-entropy-fusion-impl", FUSED_LOSSES, "native")
    stack["cross_entropy"] = fused if draft.get("cross-entropy-loss-fusion") else "vocab-parallel"
    if draft.get("use-precision-aware-optimizer") and draft.recipe["precision"] != "fp32":
        narrow = draft.recipe.get("master_dtype", "fp32") != "fp32" or draft.get("optimizer-cpu-offload", False)
        is_read = narrow or draft.get("fp8-recipe", "delayed") == "delayed"
        is_idle = draft.get("optimizer-cpu-offload") and not {"moment_dtype", "master_dtype"} & draft.recipe.keys()
        if draft.recipe["optimizer"] == "adamw" and not is_idle:
            stack["decoupled_gradients"] = is_read
    if not stack["overlap_reduce"] and stack.pop("reduce_bucket_numbers", None):
        draft.without_effect("ddp-bucket-size", "gradients are reduced at once, for nothing overlaps")
    stack["cuda_graphs"] = _captures_steps(draft)
    if sparse:
        choices = rules.options_of(RULES)["recipe.stack.dispatcher"].choices
        stack["dispatcher"] = draft.chosen("moe-token-dispatcher-type", choices, "allgather")
    draft.recipe["stack"] = stack
    version = draft.get("flash-attention-version")
    flash = f"flash-{version}" if version in (2, 3, 4) else "flash"
    kernels = {"auto": "flash", "flash": flash, "fused": "cudnn", "unfused": "eager", "local": "eager"}
    own = stack["implementation"] == "local" and not draft.get("use-flash-attn")
    draft.recipe["attention"] = draft.chosen("attention-backend", kernels, "local" if own else "auto")

    if draft.recipe["attention"] != "eager":
        for name in ("no-masked-softmax-fusion", "attention-softmax-in-fp32"):
            draft.without_effect(name, "the softmax runs inside the attention kernel")
    elif draft.get("no-masked-softmax-fusion"):
        draft.not_understood("no-masked-softmax-fusion", "scores are scaled, masked and normed one by one")


def _captures_steps(draft: drafts.Draft) -> bool:
    """Whether whole steps are captured as graphs; graphs of layers are marked as not understood."""
    older = {"enable-cuda-graph": "local", "external-cuda-graph": "transformer_engine"}
    named = next((kind for name, kind in older.items() if draft.get(name)), "none")
    kind = draft.get("cuda-graph-impl", named)
    scopes = {*draft.get("cuda-graph-scope", ()), *draft.get("cuda-graph-modules", ())}
    if kind in ("none", "full_iteration") or (kind == "local" and "full_iteration" in scopes):
        return bool(kind != "none")
    for name in draft.fates.keys() & {"cuda-graph-impl", *older}:
        draft.not_understood(name, "layers are captured as graphs, with memory of their own")
    return False


MEGATRON_LM = rules.training_target(
    "megatron-lm", {"core-0.20": RULES}, lambda settings, _: command_text(words_of(settings)) + "\n", environment_notes
)
