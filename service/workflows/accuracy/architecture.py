"""Which model does a row describe? Its columns as the fields of Model; families add what columns do not say."""

import re
from collections.abc import Mapping
from typing import Any

from service.calibration.tables import MeasuredRow, NotExpressible
from service.workflows.accuracy.draft import Draft
from service.workflows.accuracy.frameworks import GPT_2, Framework

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    r"qwen-": {"attention_bias": True, "attention_out_bias": False},
    r"qwen2": {"attention_bias": True, "attention_out_bias": False},
    r"qwen3": {"qk_norm": "per_head_dim"},
    r"gpt-oss": {"attention_bias": True, "mlp_bias": True, "router_bias": True, "attention_sinks": True},
    r"phi-1|phi-2": {**GPT_2, "parallel_attention": True, "norms_per_layer": 1, "lm_head_bias": True},
    r"stablelm-alpha|pythia|gpt-neox": {**GPT_2, "parallel_attention": True},
    r"falcon-7b": {"normalization": "layernorm", "parallel_attention": True, "norms_per_layer": 1},
    r"falcon-40b": {"normalization": "layernorm", "parallel_attention": True},
    r"gemma-2-|gemma-3": {"norms_per_layer": 4},
}
"""What models have beside their columns, by how their name begins; taken from their published configs."""

WITHOUT_DEPTHS = "w/o MTP"
"""What a row says of a model that is trained without its multi-token-prediction depths."""

LATENT = re.compile(
    r"mla(?:_q(?P<q>\d+)|_noq)?\((?:q_lora(?P<q_lora>\d+),)?"
    r"kv_lora(?P<kv>\d+),nope(?P<nope>\d+),rope(?P<rope>\d+),v(?P<v>\d+)\)"
)
WINDOWED = re.compile(r"alternating sliding window (\d+)")
CHUNKED = re.compile(r"chunked attention (\d+)")


def put_architecture(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    """Put a row's architecture into the question.

    Args:
        row: the row
        framework: its framework, which has kinds of models of its own
        draft: the question

    Raises:
        NotExpressible: a column that is needed is empty or unreadable, or the attention has no noun
    """
    heads, experts = row.count("heads"), row.count("moe_experts", 0)
    draft.model.update(
        vocab_size=row.count("vocab"),
        hidden_size=row.count("hidden"),
        num_hidden_layers=row.count("layers"),
        num_attention_heads=heads,
        num_key_value_heads=row.count("kv_heads", heads),
        gated_mlp=row.is_on("gated_mlp"),
        tie_word_embeddings=row.is_on("tied_embeddings"),
        **{field: given for field, given in _widths(row).items() if given},
    )
    if experts:
        draft.model.update(_experts(row, experts))
    draft.model.update(framework.model)
    draft.model.update(_traits(framework.models, row.text("model")))
    if WITHOUT_DEPTHS in row.text("other_features"):
        draft.model.pop("num_nextn_predict_layers", None)
    draft.model.update(_traits(FAMILIES, row.text("model")))
    if framework.learned_positions:
        draft.model["position_embedding_rows"] = row.count("seq_len")
    _put_attention(row, draft)
    draft.recipe["vocabulary_multiple"] = 1  # tables give the padded vocabulary


def _widths(row: MeasuredRow) -> dict[str, int | None]:
    return {"intermediate_size": row.whole("ffn_hidden"), "head_dim": row.whole("head_dim")}


def _experts(row: MeasuredRow, experts: int) -> dict[str, Any]:
    return {
        "num_experts": experts,
        "num_experts_per_tok": row.count("moe_top_k"),
        "moe_intermediate_size": row.count("moe_ffn_hidden"),
        "shared_expert_intermediate_size": row.count("moe_shared_ffn_hidden", 0),
        "first_k_dense_replace": row.count("moe_dense_ffn_layers", 0),
    }


def _traits(table: Mapping[str, Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next((traits for pattern, traits in table.items() if re.match(pattern, name.lower())), {})


def _put_attention(row: MeasuredRow, draft: Draft) -> None:
    said = row.text("attention_kind")
    if latent := LATENT.search(said):
        put_latent(
            draft, {name.removesuffix("_lora"): int(width) for name, width in latent.groupdict().items() if width}
        )
    elif window := WINDOWED.search(said):
        draft.model.update(layer_types=["sliding_attention", "full_attention"], sliding_window=int(window[1]))
    elif (chunk := CHUNKED.search(said)) and int(chunk[1]) < row.count("seq_len"):
        raise NotExpressible("attention_kind: chunked attention in some of the layers")


def put_latent(draft: Draft, widths: Mapping[str, int]) -> None:
    """Make the attention of a question latent.

    Args:
        draft: the question
        widths: latent width of queries (q, absent for none) and of keys and values (kv), widths of a head without
            (nope) and with (rope) rotary positions, and of a value head (v)
    """
    draft.model.pop("head_dim", None)
    draft.model.update(
        num_key_value_heads=draft.model["num_attention_heads"],
        kv_lora_rank=widths["kv"],
        qk_nope_head_dim=widths["nope"],
        qk_rope_head_dim=widths["rope"],
        v_head_dim=widths["v"],
        **({"q_lora_rank": widths["q"]} if "q" in widths else {}),
    )
