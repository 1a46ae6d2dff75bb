"""Which keys of nanotron's YAML spell a model? One rule for each field of Model, in the spelling of Qwen2Config.

Source: huggingface/nanotron@2411b02 src/nanotron/config/models_config.py.
"""

from dataclasses import fields
from typing import Any

from service.estimator.question import Model, Question
from service.exports.said import NOTHING, Rule, Rules, Said, Silent, lacking, takes_only, writes

AT = "model.model_config"
"""Where the model stands in the file."""

_OWN = "add the layer to nanotron's code"

_WRITTEN = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "tie_word_embeddings")


def _only(name: str) -> Rule:
    """A field that no key says: only what a model has where it says nothing of it can be had."""
    default = next(field.default for field in fields(Model) if field.name == name)
    return takes_only((default,), "nanotron's configuration of Qwen2 has no such part of a model", _OWN)


def _windows(value: Any, question: Question) -> Said:
    kinds = {*value} or ({"sliding_attention"} if question.model.sliding_window else {"full_attention"})
    if kinds == {"full_attention"}:
        return NOTHING
    if kinds == {"sliding_attention"}:
        return Said(((f"{AT}.sliding_window_size", question.model.sliding_window),))
    return lacking("every layer attends alike, in a window or not", _OWN)


def _experts(value: Any, question: Question) -> Said:
    model = question.model
    if not value:
        return NOTHING
    shared = model.shared_expert_intermediate_size
    at = f"{AT}.moe_config"
    sizes = (
        (f"{at}.num_experts", value),
        (f"{at}.top_k", model.num_experts_per_tok),
        (f"{at}.moe_intermediate_size", model.expert_width),
        (f"{at}.enable_shared_expert", shared > 0),
        (f"{at}.shared_expert_intermediate_size", shared or model.expert_width),
    )
    dense = range(model.first_k_dense_replace)
    layers = [layer for layer in range(model.num_hidden_layers) if layer not in dense]
    return Said((*sizes, (f"{at}.layers", layers)))


def _mlp_types(value: Any, question: Question) -> Said:
    plain = {"sparse"} if question.model.num_experts else {"dense"}
    return NOTHING if {*value} <= plain else lacking("layers with and without experts are not dealt so", _OWN)


def _longest(value: Any, question: Question) -> int:
    return max(question.recipe.sequence_length, value or 0)


_ELSEWHERE = {
    "num_experts_per_tok": "said with num_experts",
    "moe_intermediate_size": "said with num_experts",
    "shared_expert_intermediate_size": "said with num_experts",
    "first_k_dense_replace": "said with num_experts",
    "sliding_window": "said with layer_types",
}

MODEL_RULES: Rules = {
    **{f"model.{field.name}": _only(field.name) for field in fields(Model)},
    **{f"model.{name}": writes(f"{AT}.{name}") for name in _WRITTEN},
    **{f"model.{name}": Silent(reason) for name, reason in _ELSEWHERE.items()},
    "model.intermediate_size": writes(f"{AT}.intermediate_size", lambda value, q: value or q.model.expert_width),
    "model.num_key_value_heads": writes(f"{AT}.num_key_value_heads"),
    "model.head_dim": lambda value, q: (
        NOTHING
        if value in (None, q.model.hidden_size // max(1, q.model.num_attention_heads))
        else lacking("heads share the width of the model evenly", _OWN)
    ),
    "model.gated_mlp": lambda value, _: NOTHING if value else lacking("the MLP is gated", _OWN),
    "model.attention_bias": writes(f"{AT}.attention_bias"),
    "model.attention_out_bias": lambda value, _: (
        lacking("the attention's output has no bias", _OWN) if value else NOTHING
    ),
    "model.max_position_embeddings": writes(f"{AT}.max_position_embeddings", _longest),
    "model.layer_types": _windows,
    "model.num_experts": _experts,
    "model.mlp_layer_types": _mlp_types,
}
"""How each field of the model is written."""
