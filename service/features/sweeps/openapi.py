"""OpenAPI of sweeps: the crossed lists, the progress, and the table in each form."""

from typing import Any

from pydantic import TypeAdapter

from service.answers.sweeps import SweepAnswer
from service.api.openapi import (
    CLUSTER_FORMS,
    CSV_BODY,
    EVENTS,
    MODEL_FORMS,
    NAME,
    NULL,
    PRICE_FORMS,
    Schema,
    described,
    json_content,
    json_response,
    object_schema,
    path_parameter,
    ref,
    request_body,
    undefaulted,
    untitled,
)
from service.features.sweeps.axes import LISTS, MOST_ITEMS, MOST_ROWS, PLAN, ROWS, SweepOptions, SweepPlan
from service.features.workers.leases import EXAMPLE_LEASE, LEASE_HEADER
from service.validation.specs import schema_of

PARQUET = "application/vnd.apache.parquet"

SWEEP_ID = "swp_5d2c1a7e9b3f40688e0d6a4c2b1f7e9a"
ID = path_parameter("sweep_id", "Id of the sweep.", SWEEP_ID)

RECIPE: dict[str, Any] = {"sequence_length": 8192, "global_batch": 512, "training_tokens": 2e11}

SWEEPS: dict[str, Schema] = {
    "clusters-at-prices": {
        "summary": "Two models on two clusters under two layouts at three prices: 24 estimates",
        "value": {
            "name": "where to train",
            "models": ["llama-3.1-8b", "qwen3-8b"],
            "clusters": [{"gpu": "h100-sxm5-80gb", "gpus": 64}, {"gpu": "h200-sxm5-141gb", "gpus": 64}],
            "layouts": [{"tensor": 1, "zero_stage": 1}, {"tensor": 2}],
            "recipes": [RECIPE],
            "prices": [{"usd_per_gpu_hour": rate} for rate in (2.0, 2.5, 3.0)],
            "columns": ["fits", "device_peak_bytes", "days", "cost_usd"],
        },
    },
    "best-plans": {
        "summary": "The best layout of each model on each number of GPUs: four searches",
        "value": {
            "kind": "plan",
            "models": ["llama-3.1-8b", "qwen3-0.6b"],
            "clusters": [{"gpu": "h100-sxm5-80gb", "gpus": gpus} for gpus in (8, 16)],
            "recipes": [RECIPE],
            PLAN: {"objective": "time"},
        },
    },
    "one-by-one": {
        "summary": "Questions that are no combinations",
        "value": {
            ROWS: [
                {"model": "llama-3.1-8b", "recipe": RECIPE, "cluster": "dgx-h100"},
                {"model": "qwen3-0.6b", "recipe": {"sequence_length": 4096}, "cluster": {"gpu": "h100", "gpus": 8}},
            ]
        },
    },
}
"""Request bodies that POST /v1/sweeps answers."""

PROGRESS = 'id: 20000\nevent: progress\ndata: {"status":"running","rows":{"total":1000000,"done":20000}}\n\n'
LEASE_PARAMETER: Schema = {
    "name": LEASE_HEADER,
    "in": "header",
    "required": True,
    "description": "The lease that the job was claimed with.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 100},
    "example": EXAMPLE_LEASE,
}
CSV_EXAMPLE = "row,model,gpu,gpus,status,verdict,days\n0,llama-3.1-8b,h100-sxm5-80gb,64,200,fits,5.4\n"


def sweep_schemas() -> dict[str, Schema]:
    """Schemas of sweeps."""
    options = {name: undefaulted(untitled(one)) for name, one in schema_of(SweepOptions)["properties"].items()}
    answered = TypeAdapter(SweepAnswer).json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    inner = {name: _whole(one) for name, one in answered.pop("$defs").items() if name != "Versions"}
    return {
        **inner,
        "SweepAnswer": _whole(answered),
        "SweepPlan": _plan(),
        "SweepRequest": object_schema(
            f"Lists to cross, {MOST_ROWS['estimate']:,} estimates or {MOST_ROWS['plan']:,} plans at most; or {ROWS}, "
            "questions one by one.",
            [],
            {**options, **_lists(), PLAN: described("How plans are ranked.", {"anyOf": [ref("SweepPlan"), NULL]})},
        ),
    }


def create_operation() -> Schema:
    """OpenAPI of creating a sweep."""
    location = {"description": "Where it is read.", "schema": {"type": "string"}}
    return {
        "description": "What is wrong with an item is refused as a whole; a combination that cannot be answered is a "
        "row with status 422 and its reason. Rows go through the lists in the order models, clusters, layouts, "
        "recipes, prices, the last one fastest; workers answer them under the versions of the moment of asking.",
        "requestBody": request_body(ref("SweepRequest"), SWEEPS),
        "responses": {
            "202": {
                "description": "It waits for workers.",
                "headers": {"Location": location},
                "content": json_content(ref("SweepAnswer")),
            }
        },
    }


def one_operation(description: str) -> Schema:
    """OpenAPI of operations that answer with one sweep."""
    return {"description": description, "parameters": [ID], "responses": json_response(ref("SweepAnswer"))}


def events_operation() -> Schema:
    """OpenAPI of the event stream."""
    events_text = "Events: progress, each with the whole state of the sweep, then ended with the last one, or problem. "
    events_text += "A stream may end before that, with the event again: ask anew."
    content = {EVENTS: {"schema": {"description": events_text}, "example": PROGRESS}}
    return {
        "description": "A client that reconnects gets the current state first, so nothing is missed.",
        "parameters": [ID],
        "responses": {"200": {"description": "How far it is, as it changes.", "content": content}},
    }


def table_operation(media_type: str) -> Schema:
    """OpenAPI of the table."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    text = {"schema": {"type": "string", "description": "A header, then a line a row."}, "example": CSV_EXAMPLE}
    return {
        "description": "The rows of all pieces that are done, in the order of their numbers; all rows once the sweep "
        "has succeeded. An interval is three columns.",
        "parameters": [ID],
        "responses": {
            "200": {"description": "The table.", "content": {media_type: text if media_type == CSV_BODY else binary}}
        },
    }


def content_operation() -> Schema:
    """OpenAPI of the inputs for workers."""
    meaning = "Every part of the sweep, names looked up: all that its rows depend on."
    content = {"schema": {"type": "string", "format": "binary", "description": meaning}}
    return {
        "description": "Pieces of a sweep name it and their rows; what the rows are made of is read once, by a worker "
        "that holds one of them.",
        "parameters": [ID, LEASE_PARAMETER],
        "responses": {"200": {"description": "The sweep.", "content": {"application/octet-stream": content}}},
    }


def _lists() -> Schema:
    question = [("model", NAME, MODEL_FORMS), ("cluster", NAME, CLUSTER_FORMS)]
    items: dict[str, list[Schema]] = {f"{part}s": [name, *map(ref, forms)] for part, name, forms in question}
    items["layouts"] = [ref("Layout-Input"), ref("OpenLayout")]
    items["recipes"] = [ref("Recipe-Input"), ref("OpenRecipe")]
    items["prices"] = [*map(ref, PRICE_FORMS), NULL]
    meanings = {
        "models": "What is trained.",
        "clusters": "What it runs on.",
        "layouts": "How it is divided; of plans what is pinned or restricted; defaults alone where absent.",
        "recipes": "How it is trained; of plans micro_batch and recompute may be lists.",
        "prices": "What it costs; null in the list, or no list, for no price.",
    }
    lists: Schema = {name: _list(meanings[name], {"anyOf": items[name]}) for name in LISTS}
    return {**lists, ROWS: _list("Questions one by one, in place of the lists.", ref("QuestionRequest"))}


def _list(description: str, item: Schema) -> Schema:
    return {
        "description": description,
        "type": ["array", "null"],
        "minItems": 1,
        "maxItems": MOST_ITEMS,
        "items": item,
    }


def _plan() -> Schema:
    schema = schema_of(SweepPlan)
    properties = {name: undefaulted(untitled(one)) for name, one in schema["properties"].items()}
    properties["limits"] = described("What every plan has to keep to.", ref("PlanLimits"))
    return object_schema(schema["description"], [], properties)


def _whole(schema: Schema) -> Schema:
    """An object of an answer, without titles and defaults."""
    properties = {name: undefaulted(untitled(field)) for name, field in schema["properties"].items()}
    return untitled(schema) | {"properties": properties, "required": list(properties), "additionalProperties": False}
