"""OpenAPI of the catalogue's lists: a row, a page and a filter for each, from the same columns."""

from collections.abc import Mapping
from typing import Any

from service.api.access.authorization import SINGULAR
from service.api.openapi import (
    Schema,
    json_response,
    path_parameter,
    query_parameter,
    ref,
)

ROWS: Mapping[str, Schema] = {
    "models": {
        "slug": "example-model", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632,
        "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
    },
    "gpus": {
        "slug": "example-gpu", "memory_bytes": 96e9, "memory_bytes_per_s": 4e12, "bf16_flop_per_s": 1e15,
        "link_bytes_per_s": 450e9, "inter_node_bytes_per_s": 50e9, "board_watts": 700,
    },
    "clusters": {"slug": "example-cluster", "gpu": "h100-sxm5-80gb", "gpus": 256, "gpus_per_node": 8},
    "prices": {
        "provider": "example-cloud", "gpu": "h100-sxm5-80gb", "region": "frankfurt", "price_model": "reserved-1y",
        "usd_per_gpu_hour": 2.4, "as_of": "2025-06-01",
    },
    "rate-cards": {"slug": "example-rates", "rates": [{"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 2.4}]},
    "regions": {"slug": "example-hall", "country": "DEU", "grid_kg_co2e_per_kwh": 0.31, "pue": 1.25},
}  # fmt: skip
"""Example body for each list, also for replacing a row."""

PRICE_ID = "example-cloud-any-h100-sxm5-80gb-frankfurt-reserved-1y-point-2025-06-01-e0b45c36"
"""Id of that price."""

PATCHES: Mapping[str, Schema] = {
    "models": {"name": "Example 1.1B", "tie_word_embeddings": True},
    "gpus": {"board_watts": 650, "note": "capped"},
    "clusters": {"gpus": 512},
    "prices": {"usd_per_gpu_hour": 2.2, "note": "renewed"},
    "rate-cards": {"note": "until June"},
    "regions": {"grid_kg_co2e_per_kwh": 0.05, "note": "own wind power since May"},
}
"""A merge patch of that row."""

CONFIG_JSON: Schema = {
    "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "tie_word_embeddings": True,
}  # fmt: skip
"""A config.json, its longest keys left out."""


def one_example(summary: str, value: Any) -> Schema:
    """Examples of a body with one example."""
    return {"example": {"summary": summary, "value": value}}


OWNER = "owner"
"""Parameter for the owner of the row."""
OWNED = query_parameter(
    OWNER,
    "Whose row is meant, where an admin asks and several owners have one of this name; your own where absent.",
    {"type": "string"},
)
VERSION = query_parameter(
    "revision",
    "An older version of the row, by its revision; the one that holds where absent.",
    {"type": "integer", "minimum": 1},
)


def row_operation(plural: str) -> Schema:
    """OpenAPI of reading one row."""
    meaning = "Its id." if plural == "prices" else "Its slug or any other name, in any spelling."
    return {
        "parameters": [named_row(plural, meaning), VERSION, OWNED],
        "responses": json_response(ref(f"{SINGULAR[plural]}Row")),
    }


def named_row(plural: str, meaning: str) -> Schema:
    """Path parameter of one row."""
    row = ROWS[plural]
    return path_parameter("name", meaning, row.get("slug", PRICE_ID))
