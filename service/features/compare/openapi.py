"""OpenAPI of comparisons: flat and nested requests, and rows in each form."""

from typing import Any

from service.api.openapi import (
    CLUSTER_FORMS,
    CSV_BODY,
    JSON,
    NAME,
    NULL,
    PRICE_FORMS,
    TABLES,
    TYPES,
    XLSX,
    Schema,
    described,
    flat_example,
    object_schema,
    parameter_ref,
    query_parameter,
    ref,
    request_body,
    untitled,
)
from service.api.queries import REV
from service.features.compare.schemas import (
    ANY,
    CLUSTERS,
    LISTS,
    MOST_ROWS,
    PRICES,
    QUESTION,
    SPREAD,
    ClusterName,
    ComparisonOptions,
)
from service.features.estimates.examples import EXAMPLES
from service.validation.flat import FlatField, flat_fields
from service.validation.specs import schema_of

QUESTIONED = EXAMPLES["one-node"]["value"]
JOB = {name: QUESTIONED[name] for name in ("model", "recipe", "layout")}

COMPARISONS: dict[str, Schema] = {
    "clusters-at-prices": {
        "summary": "Llama 3.1 8B on three clusters at two prices, the cheapest first",
        "value": {
            QUESTION: JOB,
            CLUSTERS: ["dgx-h100", {"gpu": "h200-sxm5-141gb", "gpus": 64}, {"preset": "dgx-h100", "nodes": 16}],
            PRICES: [{"usd_per_gpu_hour": 2.5}, {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"}],
            "sort_by": "cost_usd",
        },
    },
    "every-provider": {
        "summary": "The same job at every price that the catalogue holds of its GPU",
        "value": {QUESTION: {**JOB, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 64}}, PRICES: [{"provider": ANY}]},
    },
    "own-layouts": {
        "summary": "Clusters with a price, a precision and a layout of their own",
        "value": {
            QUESTION: JOB,
            CLUSTERS: [
                {
                    "name": "rented, in fp8",
                    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 64},
                    "recipe": {"precision": "fp8-tensorwise"},
                    "price": {"usd_per_gpu_hour": 2.5},
                },
                {
                    "name": "older, in bf16",
                    "cluster": {"gpu": "a100-sxm4-80gb", "gpus": 64},
                    "layout": {"tensor": 4},
                    "price": {"usd_per_gpu_hour": 1.4},
                },
            ],
            "columns": ["fits", "days", "cost_usd", "cost_usd.high", "peak_flop_per_s"],
        },
    },
}
"""Request bodies that POST /v1/compare answers."""

MEANING = "What POST /v1/estimates takes; its cluster and price may stand in the lists instead."

NUMBER: list[Schema] = [ref("Interval"), {"type": "number"}, {"type": "boolean"}, NULL]
"""Schema of a number in a row."""


def comparison_schemas(row: Schema, versions: Schema) -> dict[str, Schema]:
    """Schemas of comparisons."""
    options = {name: untitled(schema) for name, schema in schema_of(ComparisonOptions)["properties"].items()}
    return {
        "ComparedCluster": object_schema("A cluster of a comparison, with what is its own.", ["cluster"], _own()),
        "ComparedPrices": _prices(),
        "ComparisonRequest": object_schema(
            "One question, the clusters and the prices that it is asked for, and how the rows are to stand.",
            [QUESTION],
            {QUESTION: described(MEANING, ref("JobQuestion")), **_lists(), **options},
        ),
        "ComparedRow": _row(row),
        "ComparisonAnswer": object_schema(
            "The rows, sorted.", ["rows", "sort_by", "descending", "versions"], _answer(versions)
        ),
    }


def compare_operation(form: str) -> Schema:
    """OpenAPI of a POST operation."""
    return {
        "description": "What is wrong with the request is refused as a whole. What one cluster or price cannot do is a "
        "row with status 422 and its reason; not fitting is an answer like any other.",
        "parameters": [parameter_ref(REV)],
        "requestBody": request_body(ref("ComparisonRequest"), COMPARISONS),
        "responses": _responses(form),
    }


def flat_compare_operation(form: str) -> Schema:
    """OpenAPI of a GET operation."""
    options = {name: untitled(schema) for name, schema in schema_of(ComparisonOptions)["properties"].items()}
    beside = [query_parameter(name, schema.pop("description"), schema) for name, schema in options.items()]
    return {
        "description": "The same in its flat form: fields of the cluster may be given several times, and those of the "
        "price; all their combinations are compared.",
        "parameters": [parameter_ref(REV), *map(_parameter, flat_fields().values()), *beside],
        "responses": _responses(form),
    }


def _responses(form: str) -> Schema:
    content: dict[str, Any] = {JSON: {"schema": ref("ComparisonAnswer")}}
    content |= {media: {"schema": TABLES[media]} for media in (CSV_BODY, XLSX)}
    selected = {media: schema for media, schema in content.items() if form in ("", media)}
    return {"200": {"description": "The rows, sorted.", "content": selected}}


def _parameter(field: FlatField) -> Schema:
    if field.path[0] not in LISTS:
        return parameter_ref(field.name)
    choices = [*field.choices, *([ANY] if field.name in SPREAD and field.choices else [])]
    one = TYPES[field.form] | ({"enum": choices} if choices else {})
    schema = {"type": "array", "items": one}
    return query_parameter(field.name, field.meaning, schema) | flat_example(field.name, is_list=True)


def _lists() -> Schema:
    clusters = [NAME, *map(ref, CLUSTER_FORMS), ref("ComparedCluster")]
    return {
        CLUSTERS: {
            "description": "What the job is compared on; null for the cluster of the question alone.",
            "type": ["array", "null"],
            "minItems": 1,
            "maxItems": MOST_ROWS,
            "items": {"anyOf": clusters},
        },
        PRICES: {
            "description": "Prices that clusters without one of their own are compared at; null for that of the "
            "question, or for none.",
            "type": ["array", "null"],
            "minItems": 1,
            "maxItems": MOST_ROWS,
            "items": {"anyOf": [*map(ref, PRICE_FORMS), ref("ComparedPrices"), NULL]},
        },
    }


def _own() -> Schema:
    named = untitled(schema_of(ClusterName)["properties"]["name"])
    return {
        "cluster": {"description": "What it is.", "anyOf": [NAME, *map(ref, CLUSTER_FORMS)]},
        "name": named,
        "recipe": {"description": "Fields of the recipe that are its own.", "anyOf": [ref("RecipePatch"), NULL]},
        "layout": {"description": "Fields of the layout that are its own.", "anyOf": [ref("LayoutPatch"), NULL]},
        "price": {
            "description": "Its own price, instead of those of the list.",
            "anyOf": [*map(ref, PRICE_FORMS), ref("ComparedPrices"), NULL],
        },
    }


def _prices() -> Schema:
    described = {"description": "A name; * for each that the catalogue holds.", "type": "string", "minLength": 1}
    meaning = "Prices of the catalogue, one row for each provider, region and terms; * stands for all of them."
    return object_schema(meaning, ["provider"], dict.fromkeys(SPREAD, described))


def _answer(versions: Schema) -> Schema:
    return {
        "rows": {
            "type": "array",
            "description": "Those that fit, then those that do not, then those without an answer.",
            "maxItems": MOST_ROWS,
            "items": ref("ComparedRow"),
        },
        "sort_by": {"type": "string", "description": "Number by which the rows stand."},
        "descending": {"type": "boolean", "description": "Whether the largest comes first."},
        "versions": versions,
    }


def _row(generated: Schema) -> Schema:
    properties = {name: schema for name, schema in generated["properties"].items() if name != "numbers"}
    return {
        **generated,
        "required": list(properties),
        "properties": properties,
        "additionalProperties": {"description": "A number that was asked for; null where unknown.", "anyOf": NUMBER},
    }
