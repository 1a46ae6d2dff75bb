"""Component schemas that no typed route defines."""

from pydantic import TypeAdapter

from service.api.openapi import Schema
from service.openapi.generated import with_references, without_titles
from service.validation.question_parts import ModelFields

REFERENCES = "#/components/schemas/{model}"


def shared_schemas() -> dict[str, Schema]:
    """Parts of a question that answers refer to by name."""
    schemas: dict[str, Schema] = {}
    with_references(without_titles(TypeAdapter(ModelFields).json_schema(ref_template=REFERENCES)), schemas)
    return schemas
