"""The query parameters of the contract: the flat form, in which each field of the nouns is one parameter."""

from collections.abc import Mapping

from service.api.json_schema import Schema, parameter_ref, query_parameter
from service.api.queries import EXPLAIN, REV
from service.validation.flat import FlatField, flat_fields

TYPES: dict[str, Schema] = {
    "integer": {"type": "integer"},
    "integers": {"type": "string"},
    "numbers": {"type": "string"},
    "number": {"type": "number"},
    "truth": {"type": "boolean"},
    "text": {"type": "string"},
}

EXPLAINED = query_parameter(
    EXPLAIN,
    "Add the equation, the inputs and the source of each headline number.",
    {"type": "boolean", "default": False},
)

UNDER = query_parameter(
    REV,
    "Answer under an earlier catalogue: versions.catalogue of an answer, or one that /v1/catalogue/revisions lists. "
    "The one that holds now where absent.",
    {"type": "string", "pattern": "^[0-9a-f]{12}$"},
)

EXAMPLE: Mapping[str, str | int] = {
    "model": "llama-3.1-8b",
    "sequence_length": 8192,
    "tensor": 2,
    "gpu": "h100-sxm5-80gb",
    "gpus": 8,
}
"""A question in its flat form."""


def component_parameters() -> dict[str, Schema]:
    """Every query parameter of the estimating routes.

    Returns:
        OpenAPI parameters by component name
    """
    return {EXPLAIN: EXPLAINED, REV: UNDER} | {name: _parameter(field) for name, field in flat_fields().items()}


def flat_references() -> list[Schema]:
    """References to the parameters of the flat form, for one operation.

    Returns:
        OpenAPI references
    """
    return [parameter_ref(name) for name in component_parameters()]


def _parameter(field: FlatField) -> Schema:
    one = TYPES[field.form] | ({"enum": list(field.choices)} if field.choices else {})
    schema = {"type": "array", "items": one} if field.is_list else one
    return query_parameter(field.name, field.meaning, schema) | flat_example(field.name)


def flat_example(name: str, *, is_list: bool = False) -> Schema:
    """What the contract shows as the value of a parameter.

    Args:
        name: the parameter
        is_list: whether it takes several values

    Returns:
        part of an OpenAPI parameter; empty where a question does without it
    """
    if name not in EXAMPLE:
        return {}
    return {"example": [EXAMPLE[name]] if is_list else EXAMPLE[name]}
