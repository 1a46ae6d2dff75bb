"""Component schemas that no typed route defines."""

from typing import Any

from pydantic import TypeAdapter

from service.api.openapi import Schema
from service.estimator.model.parameters import ParameterCounts
from service.features.catalogue.price_import import ImportReport
from service.openapi.generated import with_references, without_titles
from service.validation.question_parts import ModelFields

REFERENCES = "#/components/schemas/{model}"


def shared_schemas() -> dict[str, Schema]:
    """Parts of a question that answers refer to by name, and answers of the catalogue."""
    kinds: Any = tuple[ImportReport, ParameterCounts]
    answers = TypeAdapter(kinds).json_schema(ref_template=REFERENCES, mode="serialization")["$defs"]
    schemas: dict[str, Schema] = {}
    with_references(without_titles(TypeAdapter(ModelFields).json_schema(ref_template=REFERENCES)), schemas)
    return schemas | {name: without_titles(schema) for name, schema in answers.items()}
