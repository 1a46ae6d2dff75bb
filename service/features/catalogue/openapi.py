"""OpenAPI of custom rows: a body for each kind of row, from the columns of its list."""

from collections.abc import Mapping

from service.api.access.authorization import SINGULAR
from service.api.openapi import (
    CONFIG,
    ETAG,
    JSON_BODY,
    MERGE_PATCH,
    Schema,
    json_content,
    nullable,
    query_parameter,
    ref,
    request_body,
)
from service.features.catalogue.list_openapi import CONFIG_JSON, OWNED, PATCHES, ROWS, named_row, one_example
from service.features.catalogue.lists import LISTINGS, Listing
from service.features.catalogue.row_bodies import NOT_SETTABLE

REQUIRED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "models": ("slug",),
    "gpus": ("slug", "memory_bytes", "memory_bytes_per_s", "board_watts"),
    "clusters": ("slug", "gpu", "gpus"),
    "prices": ("provider", "gpu", "usd_per_gpu_hour"),
    "rate-cards": ("slug", "rates"),
    "regions": ("slug", "grid_kg_co2e_per_kwh"),
}
"""Columns that a custom row requires; every other has a default, is derived, or may be unknown."""

LOCATION: Schema = {"description": "Where the row is read.", "schema": {"type": "string"}}

IF_MATCH: Schema = {
    "name": "If-Match",
    "in": "header",
    "required": True,
    "description": "ETag of the row as GET gives it, or * for any: a change that starts from an older version is 412.",
    "schema": {"type": "string"},
    "example": "*",
}


def custom_row_schemas() -> dict[str, Schema]:
    """Schemas of changes of the catalogue."""
    whole = {plural: _whole(plural, listing) for plural, listing in LISTINGS.items()}
    changed = {"description": "Columns to change; null for derived or unknown."}
    patches = {
        f"{SINGULAR[plural]}RowPatch": {key: value for key, value in row.items() if key != "required"} | changed
        for plural, row in whole.items()
    }
    requests = {f"{SINGULAR[plural]}RowRequest": row for plural, row in whole.items()}
    return {**requests, **patches, "ImportedModelRow": _IMPORTED}


def create_operation(plural: str) -> Schema:
    """OpenAPI of creating a row."""
    return {
        "requestBody": _whole_row(plural),
        "responses": {"201": _row_response(plural, {"ETag": ETAG, "Location": LOCATION})},
    }


def replace_operation(plural: str) -> Schema:
    """OpenAPI of replacing a row."""
    return _change(plural, _whole_row(plural))


def patch_operation(plural: str) -> Schema:
    """OpenAPI of changing some columns."""
    examples = one_example("Some columns of the row", PATCHES[plural])
    body = request_body(ref(f"{SINGULAR[plural]}RowPatch"), examples, MERGE_PATCH, JSON_BODY)
    return {"description": "An RFC 7396 merge patch of the row as GET shows it."} | _change(plural, body)


def delete_operation(plural: str) -> Schema:
    """OpenAPI of deleting a row."""
    return {"parameters": [_key(plural), OWNED, IF_MATCH], "responses": {"204": {"description": "The row is gone."}}}


def import_operation() -> Schema:
    """OpenAPI of importing a config.json."""
    described = {
        "slug": "What the model is to be called; as its repository, else by type and size, where absent.",
        "name": "Its name in print; its slug where absent.",
    }
    return {
        "description": "The whole body is the config.json, as it is.",
        "parameters": [query_parameter(name, meaning, {"type": "string"}) for name, meaning in described.items()],
        "requestBody": request_body(CONFIG, one_example("A config.json", CONFIG_JSON)),
        "responses": {
            "201": {
                "description": "The row, its parameters, and what was assumed.",
                "headers": {"ETag": ETAG, "Location": LOCATION},
                "content": json_content(ref("ImportedModelRow")),
            }
        },
    }


def _whole_row(plural: str) -> Schema:
    return request_body(ref(f"{SINGULAR[plural]}RowRequest"), one_example("A row of your own", ROWS[plural]))


def _change(plural: str, body: Schema) -> Schema:
    """Common parts of all changes of a row."""
    answered = {"200": _row_response(plural, {"ETag": ETAG})}
    return {"parameters": [_key(plural), OWNED, IF_MATCH], "requestBody": body, "responses": answered}


def _row_response(plural: str, headers: Schema) -> Schema:
    content = json_content(ref(f"{SINGULAR[plural]}Row"))
    return {"description": "The row as it is now.", "headers": headers, "content": content}


def _key(plural: str) -> Schema:
    return named_row(plural, "Its id." if plural == "prices" else "Its slug, and no other name.")


def _whole(plural: str, listing: Listing) -> Schema:
    needed = REQUIRED_COLUMNS[plural]
    schemas = {column.name: dict(column.schema) for column in listing.columns}
    properties = {name: schema if name in needed else nullable(schema) for name, schema in schemas.items()}
    for name in NOT_SETTABLE:
        if name in properties:
            properties[name] = {**properties[name], "description": "Follows from the row; leave it out."}
    if plural == "models":
        properties["hf_config"] = CONFIG
    return {
        "type": "object",
        "description": f"One of your own {plural}, column by column; null or absent means derived or unknown.",
        "additionalProperties": False,
        "required": list(needed),
        "properties": properties,
    }


_SENTENCES: Schema = {"type": "array", "items": {"type": "string"}}

_IMPORTED: Schema = {
    "type": "object",
    "description": "A model preset that was made of a config.json.",
    "additionalProperties": False,
    "required": ["row", "parameters", "assumptions", "warnings"],
    "properties": {
        "row": ref("ModelRow"),
        "parameters": ref("ParameterCounts"),
        "assumptions": {**_SENTENCES, "description": "What was assumed to read the config."},
        "warnings": {**_SENTENCES, "description": "What of the config changes nothing here."},
    },
}
