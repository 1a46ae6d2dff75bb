"""Bodies of custom rows: the columns of a list, and an example for each list."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.answers.names import component
from service.api.access.authorization import SINGULAR
from service.features.catalogue.lists import LISTINGS
from service.features.catalogue.row_bodies import NOT_SETTABLE
from service.validation.forms import ReadElsewhere, described_as, object_schema, or_null
from service.validation.question_parts import HfConfig

REQUIRED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "models": ("slug",),
    "gpus": ("slug", "memory_bytes", "memory_bytes_per_s", "board_watts"),
    "clusters": ("slug", "gpu", "gpus"),
    "prices": ("provider", "gpu", "usd_per_gpu_hour"),
    "rate-cards": ("slug", "rates"),
    "regions": ("slug", "grid_kg_co2e_per_kwh"),
}
"""Columns that a custom row requires; every other has a default, is derived, or may be unknown."""


@dataclass(frozen=True)
class RowColumns(ReadElsewhere):
    """Describes the body that creates a row of a list, or a patch of one."""

    plural: str
    """Name of the list."""
    is_patch: bool = False

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        columns, required = LISTINGS[self.plural].columns, REQUIRED_COLUMNS[self.plural]
        fields = {one.name: dict(one.schema) if one.name in required else or_null(dict(one.schema)) for one in columns}
        for name in fields.keys() & {*NOT_SETTABLE}:
            fields[name]["description"] = "Follows from the row; leave it out."
        if self.plural == "models":
            fields["hf_config"] = described_as(HfConfig, handler)
        if self.is_patch:
            described = "Columns to change; null for derived or unknown."
            return component(f"{SINGULAR[self.plural]}RowPatch", object_schema(described, fields))
        described = f"One of your own {self.plural}, column by column; null or absent means derived or unknown."
        return component(f"{SINGULAR[self.plural]}RowRequest", object_schema(described, fields, required))


ROWS: Mapping[str, dict[str, Any]] = {
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

PATCHES: Mapping[str, dict[str, Any]] = {
    "models": {"name": "Example 1.1B", "tie_word_embeddings": True},
    "gpus": {"board_watts": 650, "note": "capped"},
    "clusters": {"gpus": 512},
    "prices": {"usd_per_gpu_hour": 2.2, "note": "renewed"},
    "rate-cards": {"note": "until June"},
    "regions": {"grid_kg_co2e_per_kwh": 0.05, "note": "own wind power since May"},
}
"""A merge patch of that row."""

CONFIG_JSON: dict[str, Any] = {
    "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "tie_word_embeddings": True,
}  # fmt: skip
"""A config.json, its longest keys left out."""
