"""The query parameters of the contract: the flat form, in which each field of the nouns is one parameter."""

from service.api.json_schema import Schema, parameter_ref
from service.api.queries import EXPLAIN, REV
from service.workflows.flat import FlatField, flat_fields

TYPES: dict[str, Schema] = {
    "integer": {"type": "integer"},
    "integers": {"type": "string"},
    "numbers": {"type": "string"},
    "number": {"type": "number"},
    "truth": {"type": "boolean"},
    "text": {"type": "string"},
}

EXPLAINED: Schema = {
    "name": EXPLAIN,
    "in": "query",
    "description": "Add the equation, the inputs and the source of each headline number.",
    "schema": {"type": "boolean", "default": False},
}

UNDER: Schema = {
    "name": REV,
    "in": "query",
    "description": "Answer under an earlier catalogue: versions.catalogue of an answer, or one that "
    "/v1/catalogue/revisions lists. The one that holds now where absent.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{12}$"},
}


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
    return {"name": field.name, "in": "query", "description": field.meaning, "schema": schema}
