"""Bodies of custom rows: the columns of a list, and an example for each list."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.answers.names import component
from service.features.catalogue.lists import LISTINGS
from service.features.catalogue.row_bodies import NOT_SETTABLE
from service.validation.forms import ReadElsewhere, described_as, object_schema, or_null
from service.validation.question_parts import HfConfig

SINGULAR: Mapping[str, str] = {
    "models": "Model",
    "gpus": "Gpu",
    "clusters": "Cluster",
    "prices": "Price",
    "rate-cards": "RateCard",
    "regions": "Region",
}
"""Singular of each list, in names of schemas and operations."""

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


PRICE_ID = "example-cloud-any-h100-sxm5-80gb-frankfurt-reserved-1y-point-2025-06-01-e0b45c36"
"""Id of that price."""
