"""Schemas, parameters and responses that operations share in the OpenAPI document."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from service.store.keys import Scope

Schema = dict[str, Any]

JSON = "application/json"
EVENTS = "text/event-stream"
JSON_BODY = JSON
MERGE_PATCH = "application/merge-patch+json"
CSV_BODY = "text/csv"
TEXT_BODY = "text/plain"
ETAG: Schema = {"description": "Version of what is answered.", "schema": {"type": "string"}}
"""Header of every answer to GET, for If-None-Match; of a row, for If-Match too."""
REQUESTS = Path(__file__).parents[1] / "web" / "examples" / "requests"
"""Examples of request bodies, one file an operation. Tests send each."""

KEY, SHEET_KEY, SHARE_LINK = "key", "sheetKey", "shareLink"
"""Security schemes: a key or token in a header, a sheet key in the query, and the signature of a share link."""

SCOPE = "x-scope"
"""Extension of an operation that names its scope: only OAuth schemes of OpenAPI have scopes."""

PUBLIC: Schema = {"security": []}
"""For `openapi_extra`: an operation without a key. Probes send none, and the webhook's path holds its own secret."""


def requires(scope: Scope, *in_query: str) -> Schema:
    """For `openapi_extra`: the scope of an operation, and the credentials that it accepts in its query beside a key."""
    return {SCOPE: scope, **({"security": [{name: []} for name in (KEY, *in_query)]} if in_query else {})}


def with_scope(extra: Schema | None, methods: Collection[str]) -> Schema:
    """What an operation declares, with a scope where it declares none: GET reads, and other methods change."""
    return ({} if is_public(extra) else requires("read" if "GET" in methods else "write")) | (extra or {})


def is_public(extra: Schema | None) -> bool:
    """Whether an operation declares that it needs no key."""
    return extra is not None and extra.get("security") == []


def accepts(extra: Schema | None, scheme: str) -> bool:
    """Whether an operation declares a security scheme of its own."""
    return any(scheme in one for one in (extra or {}).get("security", ()))


def ref(name: str) -> Schema:
    """The schema of a component, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def request_bodies(operation: str) -> dict[str, Any]:
    """Examples of the body of an operation by name, each a summary and a value."""
    bodies: dict[str, Any] = json.loads((REQUESTS / f"{operation}.json").read_text(encoding="utf-8"))
    return bodies


def examples(operation: str, *media_types: str, text: Schema | None = None, required: bool = True) -> Schema:
    """Examples of the body of an operation, for `openapi_extra`; `text` describes a body of text/plain."""
    content = {name: {"examples": request_bodies(operation)} for name in media_types or (JSON,)}
    return {"requestBody": {"required": required, "content": content | ({} if text is None else {TEXT_BODY: text})}}


BINARY: Schema = {"type": "string", "format": "binary"}


def content(media_type: str, schema: Schema, example: str | None = None) -> dict[int | str, Schema]:
    """An answer of one media type, for `responses`."""
    return {200: {"content": {media_type: {"schema": schema, **({} if example is None else {"example": example})}}}}


def located(status: int, description: str = "Where it is read.", **headers: Schema) -> dict[int | str, Schema]:
    """An answer with the address of what was created, for `responses`."""
    location = {"description": description, "schema": {"type": "string"}}
    return {status: {"headers": {**headers, "Location": location}}}


def events(meaning: str) -> dict[int | str, Schema]:
    """An answer that may also come as server-sent events, for `responses`."""
    return content(EVENTS, {"description": f"Events: {meaning}"})


XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

PARQUET = "application/vnd.apache.parquet"

MARKDOWN = "text/markdown"

TABLES: dict[str, Schema] = {
    CSV_BODY: {"type": "string", "description": "RFC 4180, with a header."},
    XLSX: {"type": "string", "format": "binary", "description": "One sheet; texts never run as formulas."},
    PARQUET: {"type": "string", "format": "binary", "description": "Typed columns, each with what it means."},
    MARKDOWN: {"type": "string", "description": "A table with numbers in the units of people."},
}


def table_response(media_type: str, description: str) -> dict[int | str, Schema]:
    """An answer that is a table, for `responses`."""
    return {200: {"description": description, "content": {media_type: {"schema": TABLES[media_type]}}}}
