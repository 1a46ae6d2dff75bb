"""Frameworks of published tables, and the body of a row's question, built part by part."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import isqrt
from typing import Any, Literal

from service.calibration.tables import MeasuredRow, NotExpressible
from service.formats.frameworks.megatron_core import megatron
from service.formats.rules import COMBINED, Option, boolean, integer, options_of

CELLS = "cells.toml"
"""Words in the cells of published tables."""

GPT_2: Mapping[str, Any] = {
    "normalization": "layernorm", "attention_bias": True, "attention_out_bias": True, "mlp_bias": True,
}  # fmt: skip
"""Fields of models of GPT-2's kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework as questions express it."""

    name: str
    """Regular expression for the start of the framework's cell."""
    kinds: tuple[str, ...] = ()
    """Kinds of training whose scripts it is; every kind if empty."""
    stack: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    precisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further defaults by precision: regular expression for the start of the recipe's name."""
    families: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Defaults of its recipes by model family: regular expression for the start of the model's name."""
    adapters: tuple[str, ...] = ()
    """Matrices that its scripts give adapters; those of the stack if empty."""
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of its published configurations and scripts, by a regular expression that a row's source, kind of
    training and sharding have; a later one that fits too goes before."""
    learned_positions: bool = False
    """Its models have a position table as long as the sequence."""
    zero_stages: Mapping[str, int] = field(default_factory=dict)
    """Default ZeRO stage by kind of training."""
    runs_alone: bool = False
    """Its scripts name that stage for one GPU, too."""
    recompute: str | None = None
    recipe_recomputes: Mapping[str, Any] = field(default_factory=dict)
    """Recompute of its own recipes, for rows that refer to them, by the start of the model's name."""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Model fields that its recipes add to the columns, by the start of the model's name."""
    last_takes_remainder: bool = False
    """For layers that do not divide evenly into chunks: embedding and loss count as layers if that makes them even;
    else every chunk but the last is full."""
    predicts_memory: bool = True
    """The stack represents its memory too, not only its compute and communication."""
    why: str


@cache
def table_of(name: str) -> Mapping[str, Any]:
    """A table of decisions that ships with this package."""
    return tomllib.loads(files("service.evaluation").joinpath(name).read_text(encoding="utf-8"))


def first_match(table: Mapping[str, Any], text: str, default: Any = None) -> Any:
    """The value of the first pattern that a text begins with."""
    return next((value for pattern, value in table.items() if re.match(pattern, text)), default)


@cache
def frameworks() -> tuple[Framework, ...]:
    """Frameworks that questions can express; the first match applies."""
    rows = table_of("frameworks.toml")["framework"]
    lists = ("adapters", "kinds")
    return tuple(Framework(**{**row, **{name: tuple(row.get(name, ())) for name in lists}}) for row in rows)


def framework_of(row: MeasuredRow) -> Framework:
    """The framework of a row."""
    cell, kind = row.text("framework"), row.text("training_kind")
    for known in frameworks():
        is_its_kind = not known.kinds or kind in known.kinds
        if re.match(known.name, cell) and is_its_kind and (known.predicts_memory or row.form != "memory"):
            return known
    raise NotExpressible("framework: no stack stands for it")


@dataclass(frozen=True, slots=True)
class Draft:
    """The body of a question, and the details of the row that it leaves out."""

    model: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    stack: dict[str, Any] = field(default_factory=dict)
    unmodelled: list[str] = field(default_factory=list)
    """Details of the row that change its figures and that no field expresses."""

    def put(self, path: str, value: Any) -> None:
        """Set a field of the question, e.g. `layout.zero_stage`; `stack.` stands for `recipe.stack.`."""
        part, _, name = path.partition(".")
        getattr(self, part)[name] = value

    def body(self) -> dict[str, Any]:
        """The body as a caller would send it."""
        recipe = {**self.recipe, "stack": self.stack}
        return {"model": self.model, "recipe": recipe, "layout": self.layout, "cluster": self.cluster}


def layers_spread(layers: int, parts: int, *, rest_last: bool) -> tuple[int, ...]:
    """Layers of each part of a pipeline that they do not fill evenly.

    >>> layers_spread(61, 16, rest_last=True)
    (4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1)
    >>> layers_spread(10, 4, rest_last=False), layers_spread(9, 8, rest_last=True)
    ((3, 3, 2, 2), (2, 1, 1, 1, 1, 1, 1, 1))
    """
    full = -(-layers // parts)
    if rest_last and full * (parts - 1) < layers:
        return (*(full,) * (parts - 1), layers - full * (parts - 1))
    return tuple(layers // parts + (part < layers % parts) for part in range(parts))


def layers_by_cost(layers: int, stages: int, layer_cost: float, head_cost: float) -> tuple[int, ...]:
    """Layers of each stage when a stage is closed once its cost reaches its share (nanotron).

    >>> layers_by_cost(16, 2, 1.0, 5.0)
    (11, 5)
    """
    share = (layers * layer_cost + head_cost) / stages
    counts, stage, reached = [0] * stages, 0, 0.0
    for _ in range(layers):
        counts[stage] += 1
        reached += layer_cost
        if reached > share * (stage + 1) and stage < stages - 1:
            stage += 1
    return tuple(counts)


def virtual_group(micro_batches: int, stages: int) -> int | None:
    """Micro-batches that a stage runs through one chunk before the next, if they do not fill whole rounds.

    >>> virtual_group(5, 4), virtual_group(8, 4), virtual_group(2, 4)
    (5, None, None)
    """
    if micro_batches % stages == 0:
        return None
    lower = [size for size in range(1, isqrt(micro_batches) + 1) if micro_batches % size == 0]
    sizes = [*lower, *(micro_batches // size for size in lower)]
    return min((size for size in sizes if size >= stages), default=None)


WITHOUT_DEPTHS = "w/o MTP"
"""Mark of a model trained without its multi-token-prediction depths."""

LATENT = re.compile(
    r"mla(?:_q(?P<q>\d+)|_noq)?\((?:q_lora(?P<q_lora>\d+),)?"
    r"kv_lora(?P<kv>\d+),nope(?P<nope>\d+),rope(?P<rope>\d+),v(?P<v>\d+)\)"
)
WINDOWED = re.compile(r"alternating sliding window (\d+)")
CHUNKED = re.compile(r"chunked attention (\d+)")


def put_architecture(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    """Set the model fields from a row's columns."""
    heads, experts = row.count("heads"), row.count("moe_experts", 0)
    widths = {"intermediate_size": row.whole("ffn_hidden"), "head_dim": row.whole("head_dim")}
    draft.model.update(
        vocab_size=row.count("vocab"),
        hidden_size=row.count("hidden"),
        num_hidden_layers=row.count("layers"),
        num_attention_heads=heads,
        num_key_value_heads=row.count("kv_heads", heads),
        gated_mlp=row.is_on("gated_mlp"),
        tie_word_embeddings=row.is_on("tied_embeddings"),
        **{field: width for field, width in widths.items() if width},
    )
    if experts:
        draft.model.update(
            num_experts=experts,
            num_experts_per_tok=row.count("moe_top_k"),
            moe_intermediate_size=row.count("moe_ffn_hidden"),
            shared_expert_intermediate_size=row.count("moe_shared_ffn_hidden", 0),
            first_k_dense_replace=row.count("moe_dense_ffn_layers", 0),
        )
    draft.model.update(framework.model)
    draft.model.update(first_match(framework.models, row.text("model").lower(), {}))
    if WITHOUT_DEPTHS in row.text("other_features"):
        draft.model.pop("num_nextn_predict_layers", None)
    draft.model.update(first_match(table_of(CELLS)["families"], row.text("model").lower(), {}))
    if framework.learned_positions:
        draft.model["position_embedding_rows"] = row.count("seq_len")
    _put_attention(row, draft)
    draft.recipe["vocabulary_multiple"] = 1  # tables give the padded vocabulary


def _put_attention(row: MeasuredRow, draft: Draft) -> None:
    cell = row.text("attention_kind")
    if latent := LATENT.search(cell):
        put_latent(
            draft, {name.removesuffix("_lora"): int(width) for name, width in latent.groupdict().items() if width}
        )
    elif window := WINDOWED.search(cell):
        draft.model.update(layer_types=["sliding_attention", "full_attention"], sliding_window=int(window[1]))
    elif (chunk := CHUNKED.search(cell)) and int(chunk[1]) < row.count("seq_len"):
        raise NotExpressible("attention_kind: chunked attention in some of the layers")


def put_latent(draft: Draft, widths: Mapping[str, int]) -> None:
    """Switch the model to latent attention."""
    draft.model.pop("head_dim", None)
    draft.model.update(
        num_key_value_heads=draft.model["num_attention_heads"],
        kv_lora_rank=widths["kv"],
        qk_nope_head_dim=widths["nope"],
        qk_rope_head_dim=widths["rope"],
        v_head_dim=widths["v"],
        **({"q_lora_rank": widths["q"]} if "q" in widths else {}),
    )


SHARDED_BETWEEN = re.compile(r"SHARD_GRAD_OP|not resharded after forward")
"""Weights are sharded between steps, and stay all-gathered from the forward pass to the backward pass."""

SHARD_GROUP = re.compile(r"(?:ZeRO-1|FSDP) group (\d+)|FSDP (\d+) in node")
"""Ranks that share one sharded copy."""


def put_sharding(row: MeasuredRow, draft: Draft) -> None:
    """Set the sharding of a draft that already has its degrees."""
    cell, layout = row.text("sharding"), draft.layout
    if SHARDED_BETWEEN.search(cell):
        layout.update(zero_stage=3, reshard_after_forward=False)
    if group := SHARD_GROUP.search(cell):
        ranks = int(group[1] or group[2])
        if 1 <= ranks < layout["data"] * layout["context"]:
            layout["shard_group"] = ranks


def put_configs(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    """Set what the framework's own configurations say of a row."""
    described = " ".join(row.text(column) for column in ("source", "training_kind", "sharding", "gpu"))
    for pattern, given in framework.configs.items():
        for path, value in given.items() if re.search(pattern, described) else ():
            part, _, name = path.partition(".")
            if part != "method":
                draft.put(path, value)
            elif "method" in draft.recipe:
                draft.recipe["method"][name] = value


def put_features(row: MeasuredRow, draft: Draft) -> None:
    """Set the features that a row names in words, or list them as unmodelled."""
    for column, known in table_of(CELLS)["features"].items():
        for pattern, field_set in known.items():
            if re.search(pattern, row.text(column)):
                draft.put(field_set["path"], field_set["value"])
    if "Ulysses" in row.text("other_features") and draft.layout["context"] > 1:
        draft.layout["context_method"] = "ulysses"
    for column, details in table_of(CELLS)["unmodelled"].items():
        matching = (why for pattern, why in details.items() if re.search(pattern, row.text(column)))
        draft.unmodelled.extend(f"{column}: {why}" for why in matching)


@dataclass(frozen=True, slots=True)
class Flag:
    """Effect of one option on the question."""

    does: Literal["reads", "sets", "describes", "unmodelled", "refuses"]
    why: str = ""
    """Why it is refused or unmodelled."""
    path: str = ""
    """Field of the question that it sets."""
    to: Callable[[str], Any] = str
    """Conversion of the option's value to the field's."""


def always(value: Any) -> Callable[[str], Any]:
    """A constant for an option that is present."""
    return lambda _: value


def one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    """The field's value by the option's."""
    return lambda text: values[text]


LARGEST = 1 << 24


def whole_of(flags: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """The whole number of an option.

    >>> whole_of({"mamba-num-heads": "32"}, "mamba-num-heads"), whole_of({}, "mamba-num-heads", 8)
    (32, 8)
    """
    try:
        return whole(str(flags.get(name, default)))
    except ValueError:
        raise NotExpressible(f"flag {name}: no field takes its value") from None


def whole(text: str) -> int:
    """A whole number from an option's text.

    >>> whole("8")
    8
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= LARGEST):
        raise ValueError(text)
    return int(text)


DESCRIBES = Flag("describes")


def _setter(path: str, value: Any = None, values: Mapping[str, Any] | str | None = None) -> Flag:
    if values is None:
        return Flag("sets", path=path, to=always(value))
    return Flag("sets", path=path, to=one_of(_VALUES[values] if isinstance(values, str) else values))


def _flag_of(path: str, option: Option) -> Flag:
    if option.form is boolean:
        to = always(option.choices[True])
    elif option.choices:
        to = one_of(option.choices)
    else:
        to = whole if option.form is integer else float
    return Flag("sets", path=path.removeprefix("recipe.") if path.startswith("recipe.stack.") else path, to=to)


_OF_RULES = {
    option.name: _flag_of(path, option)
    for path, option in options_of(megatron.RULES).items()
    if option.choices or option.default is not COMBINED
}
"""Options with a field of their own; the table of options overrides those that a row states otherwise."""

_VALUES: Mapping[str, Mapping[str, Any]] = {"dtypes": megatron.DTYPES, "sharding": megatron.SHARDING}
"""Values of fields by those of options, where both directions use them."""

Flags = dict[str, Any]


OPTIONS = "megatron_options.toml"


@cache
def known_flags() -> Mapping[str, Flag]:
    """Every known option."""
    table = table_of(OPTIONS)
    return {
        **_OF_RULES,
        **dict.fromkeys(table["read"], Flag("reads")),
        **{name: _setter(**row) for name, row in table["sets"].items()},
        **dict.fromkeys((*table["in_columns"], *table["without_bytes"]), DESCRIBES),
        **{name: Flag("unmodelled", why) for name, why in table["unmodelled"].items()},
        **{name: Flag("refuses", why) for name, why in table["refused"].items()},
    }


def flag_of(name: str) -> Flag | None:
    """Effect of an option; None if unknown.

    >>> flag_of("log-interval") == flag_of("bf16"), flag_of("warp-drive")
    (True, None)
    """
    prefixes = tuple(table_of(OPTIONS)["prefixes_without_bytes"])
    return known_flags().get(name) or (DESCRIBES if name.startswith(prefixes) else None)


KINDS = {
    "M": ("mamba2", "none"),
    "*": ("full_attention", "none"),
    "-": ("none", "dense"),
    "E": ("none", "sparse"),
}
"""Token mixer and MLP of each letter."""

HEAD_WIDTH, STATE_WIDTH, GROUPS, TAPS = 64, 128, 8, 4
"""Megatron-LM's defaults of mamba-head-dim, mamba-state-dim and mamba-num-groups, and the taps of its convolution."""


def hybrid_fields(pattern: str, hidden: int, flags: Flags) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Model fields of a hybrid layer pattern, and the layers of each stage.

    M is a state space, * attention, - an MLP, E experts, | the next stage.

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


LONGEST_OPTIONS = 32_768

LONGEST_PERIOD = 2048

PATTERNS = ("hybrid-layer-pattern", "hybrid-override-pattern")

OTHER_RUNS = {
    "distill": "a teacher model is held beside the trained one",
    "flextron": "a model of many widths is trained at once",
}
"""Runs that their name, not their options, marks as something else, and why they are refused."""


def flags_of(row: MeasuredRow) -> Flags:
    """The options of a run that are switched on."""
    text = row.text("extra_config_json") or "{}"
    try:
        flags = json.loads(text) if len(text) <= LONGEST_OPTIONS else None
    except (ValueError, RecursionError):
        flags = None
    if not isinstance(flags, dict):
        raise NotExpressible("unreadable: extra_config_json")
    return {name: value for name, value in flags.items() if value is not False}


def refuse_other_runs(name: str) -> None:
    """Refuse a run whose name implies more memory than its options do."""
    for mark, why in OTHER_RUNS.items():
        if mark in name:
            raise NotExpressible(f"flag {mark}: {why}")


def put_flags(flags: Flags, draft: Draft) -> None:
    """Apply the options of a run to a draft that already has model and layout."""
    _refuse(flags)
    _put_defaults(flags, draft)
    for name, value in flags.items():
        flag = known_flags().get(name, DESCRIBES)
        if flag.does == "unmodelled":
            draft.unmodelled.append(f"{name}: {flag.why}")
        if flag.does == "sets":
            draft.put(flag.path, _value(name, value))
    if not draft.model.get("num_experts"):
        draft.stack.pop("dispatcher", None)
    _put_attention_flags(flags, draft)
    put_layers(flags, draft)
    _put_software(flags, draft)
    _put_stages(flags, draft)


def _refuse(flags: Flags) -> None:
    for name in flags:
        flag = flag_of(name)
        if flag is None:
            raise NotExpressible(f"flag {ascii(name[:60])[1:-1]}: not known")
        if flag.does == "refuses":
            raise NotExpressible(f"flag {name}: {flag.why}")
    spec = str(flags.get("spec", ""))
    if spec and "hybrid" not in spec and "mamba" not in spec:
        raise NotExpressible("flag spec: layers of another kind")
    if float(flags.get("optimizer-offload-fraction", 1)) != 1:
        raise NotExpressible("flag optimizer-offload-fraction: part of the optimizer is offloaded")


def _value(name: str, value: Any) -> Any:
    try:
        return known_flags()[name].to(str(value))
    except (KeyError, ValueError):
        raise NotExpressible(f"flag {name}: no field takes its value") from None


def _put_defaults(flags: Flags, draft: Draft) -> None:
    """Megatron-LM's defaults: GPT-2's layers, learned positions, dropout."""
    if not {"bf16", "fp16"} & flags.keys() and "fp8-format" in flags:
        raise NotExpressible("flag fp8-format: activations of 32 bits around products of 8")
    draft.model.update(GPT_2)
    draft.stack.update(attention_mask=True, grouped_experts=False, dispatcher="allgather")
    if "disable-bias-linear" in flags:
        draft.model.update(attention_bias=False, attention_out_bias=False, mlp_bias=False)
    learned = flags.get("position-embedding-type", "learned_absolute") == "learned_absolute"
    if learned and "use-rotary-position-embeddings" not in flags:
        rows = whole_of(flags, "max-position-embeddings", draft.recipe["sequence_length"])
        draft.model["position_embedding_rows"] = rows
    dropouts = [float(flags.get(name, 0.1)) for name in ("hidden-dropout", "attention-dropout")]
    draft.recipe["dropout_fraction"] = max(dropouts)
    if draft.model.get("num_experts"):
        draft.layout.setdefault("expert_tensor", draft.layout["tensor"])


def _put_attention_flags(flags: Flags, draft: Draft) -> None:
    if "multi-latent-attention" in flags:
        names = {"q": "q-lora-rank", "kv": "kv-lora-rank", "nope": "qk-head-dim", "rope": "qk-pos-emb-head-dim"}
        widths = {short: whole_of(flags, name) for short, name in {**names, "v": "v-head-dim"}.items() if name in flags}
        put_latent(draft, widths)
    elif "qk-layernorm" in flags:
        is_plain = draft.model["normalization"].startswith("rmsnorm")
        draft.model["qk_norm"] = "per_head_dim" if is_plain else "per_head_dim_biased"
    if "attention-backend" not in flags:
        own = flags.get("transformer-impl") == "local" and "use-flash-attn" not in flags
        draft.recipe["attention"] = "eager" if own else "flash"
    if "window-size" in flags:
        keys = int(str(flags["window-size"]).strip("()").split(",")[0]) + 1
        skipped = _period(flags, "window-attn-skip-freq") if "window-attn-skip-freq" in flags else 1
        kinds = ["sliding_attention"] * max(1, skipped - 1) + ["full_attention"] * (skipped > 1)
        draft.model.update(sliding_window=keys, layer_types=kinds)


def put_layers(flags: Flags, draft: Draft) -> None:
    """Set the layers of a model by the options that state them."""
    for name in PATTERNS:
        if name in flags:
            fields, stages = hybrid_fields(str(flags[name]), draft.model["hidden_size"], flags)
            draft.model.update(fields)
            if len(stages) > 1:
                draft.layout["stage_layers"] = list(stages)
    if flags.get("experimental-attention-variant") == "gated_delta_net":
        every = _period(flags, "linear-attention-freq")
        draft.model.update(
            layer_types=["gated_delta_net"] * (every - 1) + ["full_attention"],
            conv_kernel=whole_of(flags, "linear-conv-kernel-dim"),
            linear_num_key_heads=whole_of(flags, "linear-num-key-heads"),
            linear_num_value_heads=whole_of(flags, "linear-num-value-heads"),
            linear_key_head_dim=whole_of(flags, "linear-key-head-dim"),
            linear_value_head_dim=whole_of(flags, "linear-value-head-dim"),
        )
    elif "experimental-attention-variant" in flags:
        raise NotExpressible("flag experimental-attention-variant: attention over chosen keys")
    if "moe-layer-freq" in flags and draft.model.get("num_experts"):
        draft.model["mlp_layer_types"] = megatron.mlp_types_of(str(flags["moe-layer-freq"]))


def _period(flags: Flags, name: str) -> int:
    period = whole_of(flags, name)
    if period > LONGEST_PERIOD:
        raise NotExpressible(f"flag {name}: no field takes its value")
    return period


def _put_software(flags: Flags, draft: Draft) -> None:
    if "fp8-format" in flags:
        draft.recipe["precision"] = megatron.FP8_RECIPES.get(str(flags.get("fp8-recipe", "delayed")))
    if "cross-entropy-loss-fusion" in flags:
        loss = str(flags.get("cross-entropy-fusion-impl", "native"))
        draft.stack["cross_entropy"] = megatron.FUSED_LOSSES[loss]
    instances = whole_of(flags, "num-distributed-optimizer-instances", 1)
    replicas = draft.layout["data"] * draft.layout["context"]
    if instances > 1 and replicas % instances == 0:
        draft.layout["shard_group"] = replicas // instances


def _put_stages(flags: Flags, draft: Draft) -> None:
    stages, layers = draft.layout["pipeline"], draft.model["num_hidden_layers"]
    if "num-layers-per-virtual-pipeline-stage" in flags:
        each = whole_of(flags, "num-layers-per-virtual-pipeline-stage")
        draft.layout["virtual_pipeline"] = max(1, layers // (stages * each))
    if "pipeline-model-parallel-layout" in flags:
        parts = megatron.layers_of_layout(str(flags["pipeline-model-parallel-layout"]))
        draft.layout.update(stage_layers=list(parts), virtual_pipeline=megatron.even_chunks(parts, stages))
    ends = [f"decoder-{end}-pipeline-num-layers" for end in ("first", "last")]
    if any(end in flags for end in ends):
        first, last = (whole_of(flags, end) if end in flags else None for end in ends)
        parts = megatron.layers_with_ends(layers, stages * draft.layout.get("virtual_pipeline", 1), first, last)
        draft.layout["stage_layers"] = list(parts)
