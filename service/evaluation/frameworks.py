"""Frameworks of published tables, and the body of a row's question, built part by part.

A framework has the stack that represents it, and its defaults where a row leaves a cell open.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import isqrt
from typing import Any

from service.calibration.tables import MeasuredRow, NotExpressible

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
    stack: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    precisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further defaults by precision: regular expression for the start of the recipe's name."""
    families: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Defaults of its recipes by model family: regular expression for the start of the model's name."""
    adapters: tuple[str, ...] = ()
    """Matrices that its scripts give adapters; those of the stack if empty."""
    learned_positions: bool = False
    """Its models have a position table as long as the sequence."""
    zero_stages: Mapping[str, int] = field(default_factory=dict)
    """Default ZeRO stage by kind of training."""
    recompute: str | None = None
    recipe_recomputes: Mapping[str, Any] = field(default_factory=dict)
    """Recompute of its own recipes, for rows that refer to them, by the start of the model's name."""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Model fields that its recipes add to the columns, by the start of the model's name."""
    last_takes_remainder: bool = False
    """For layers that do not divide evenly into chunks: embedding and loss count as layers if that makes them even;
    else every chunk but the last is full."""
    overlaps_experts_since: str | None = None
    """Release from which its recipes overlap expert communication on Blackwell; all of them use CUDA graphs."""
    predicts_memory: bool = True
    """The stack represents its memory too, not only its compute and communication."""
    why: str
    """Reason for this choice of stack."""


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
    return tuple(Framework(**{**row, "adapters": tuple(row.get("adapters", ()))}) for row in rows)


def framework_of(row: MeasuredRow) -> Framework:
    """The framework of a row."""
    cell = row.text("framework")
    for known in frameworks():
        if re.match(known.name, cell) and (known.predicts_memory or row.form != "memory"):
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
    """The training software and its choices."""
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


def put_features(row: MeasuredRow, draft: Draft) -> None:
    """Set the features that a row names in words, or list them as unmodelled."""
    cell = row.text("other_features")
    for pattern, field_set in table_of(CELLS)["features"].items():
        if re.search(pattern, cell):
            draft.put(field_set["path"], field_set["value"])
    if "Ulysses" in cell and draft.layout["context"] > 1:
        draft.layout["context_method"] = "ulysses"
    for column, details in table_of(CELLS)["unmodelled"].items():
        matching = (why for pattern, why in details.items() if re.search(pattern, row.text(column)))
        draft.unmodelled.extend(f"{column}: {why}" for why in matching)
