"""Component schemas, generated from the dataclasses of requests and answers."""

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from service.answers.diagnoses import Diagnosis
from service.answers.estimates import (
    Answer,
    FlopAnswer,
    GpuHoursAnswer,
    Grounds,
    MemoryAnswer,
    MethodAnswer,
    TimelineAnswer,
)
from service.answers.names import WIRE_NAMES
from service.answers.plans import PlanAnswer
from service.api.openapi import (
    Schema,
    object_schema,
    ref,
    request_schemas,
    untitled,
)
from service.estimator.choices import choices
from service.estimator.model.parameters import ParameterCounts
from service.estimator.other_tools.tool import Comparison
from service.features.batch.openapi import batch_schemas
from service.features.catalogue.price_import import ImportReport
from service.openapi.generated import with_references
from service.openapi.places import PLACES
from service.validation.question_parts import (
    ClusterFields,
    JobQuestion,
    ModelFields,
    QuestionPatch,
    QuestionRequest,
    RecipeFields,
)

ANSWERED = (
    Grounds,
    Answer,
    MemoryAnswer,
    FlopAnswer,
    GpuHoursAnswer,
    TimelineAnswer,
)
"""What estimating answers hold; first what all of them share, whose docstrings pydantic does not inherit."""

COMPARED = (Comparison, MethodAnswer)
"""What another tool says, and the answer that holds it, whose docstrings pydantic does not inherit either."""

OTHERS = (
    Diagnosis, ImportReport, ParameterCounts, PlanAnswer,
)  # fmt: skip
"""What other answers hold."""


INHERITING = ((JobQuestion, QuestionRequest),)
"""Classes of other answers whose fields are partly another's, whose docstrings pydantic does not inherit."""


SHARED: tuple[Any, ...] = (QuestionRequest, JobQuestion, ModelFields, RecipeFields, ClusterFields, QuestionPatch)
"""Parts of a question that several features take."""


class WireSchema(GenerateJsonSchema):
    """JSON schema of answers as serialised: no defaults, every field required, FLOP counts as doubles."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic calls it so
        """No titles: they would only repeat the field names."""
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: FBT001 - pydantic calls it so
        """Every field of an answer is always there."""
        return self.mode == "serialization" or super().field_is_required(field, total)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """An answer has no defaults."""
        inner = super().default_schema(schema)
        return {k: v for k, v in inner.items() if k != "default"} if self.mode == "serialization" else inner


def component_schemas() -> dict[str, Schema]:
    """Every schema that estimating requests and answers refer to."""
    request_types = _all_of(*(kind for _, kind in PLACES), *SHARED)
    answered = _all_of(*ANSWERED, *COMPARED, *OTHERS)
    whole, document = TypeAdapter.json_schemas(
        [("asked", "validation", request_types), ("answered", "serialization", answered)],
        schema_generator=WireSchema,
        ref_template="#/components/schemas/{model}",
    )
    generated: dict[str, Schema] = {}
    with_references([*whole.values()], generated)
    generated |= {name: with_references(schema, generated) for name, schema in document["$defs"].items()}
    spelled = {name: _as_on_the_wire(schema) for name, schema in generated.items()}
    for base, *kinds_of_it in (ANSWERED, COMPARED):
        shared = spelled.pop(base.__name__)["properties"]
        for kind in kinds_of_it:
            spelled[kind.__name__]["properties"] |= shared
    for heir, ancestor in INHERITING:
        spelled[heir.__name__]["properties"] |= spelled[ancestor.__name__]["properties"]
    requests = request_schemas(spelled)
    requests |= batch_schemas()
    del spelled["Nodes"]
    return {name: _defaults_in_words(untitled(schema)) for name, schema in (spelled | requests).items()}


def _all_of(*kinds: type) -> TypeAdapter[Any]:
    """Every kind at once: each class that several of them hold is read once."""
    return TypeAdapter(tuple[kinds])  # type: ignore[valid-type]  # known at run time


def _as_on_the_wire(schema: Schema) -> Schema:
    """A dataclass's schema with the field names and number types that `to_wire` gives it."""
    properties = {WIRE_NAMES.get(name, name): _as_double(name, s) for name, s in schema.get("properties", {}).items()}
    required = [WIRE_NAMES.get(name, name) for name in schema.get("required", ())]
    return schema | {"properties": properties} | ({"required": required} if required else {})


def _as_double(name: str, schema: Schema) -> Schema:
    if not name.endswith("_flop"):
        return schema
    options = [{"type": "number"} if s.get("type") == "integer" else s for s in schema.get("anyOf", ())]
    return schema | ({"anyOf": options} if options else {"type": "number"})


def _defaults_in_words(schema: Schema) -> Schema:
    """Move defaults into descriptions: client generators treat a field with a `default` as always present."""
    return schema | {"properties": {name: _default_in_words(inner) for name, inner in schema["properties"].items()}}


def _default_in_words(field: Schema) -> Schema:
    default = field.get("default")
    schema = {key: value for key, value in field.items() if key != "default"}
    if default in (None, []):
        return schema
    words = default if isinstance(default, str) else json.dumps(default)
    return schema | {"description": f"{field['description']} Default: {words}."}


_TEXT: Schema = {"type": "string"}


def plain_schemas() -> dict[str, Schema]:
    """The schemas of bodies and answers that no dataclass holds."""
    return {
        "Choice": _CHOICE,
        "Choices": _choices(),
    }


_CHOICE = object_schema(
    "A name that a field takes.",
    ["name", "meaning", "source"],
    {
        "name": _TEXT | {"description": "The name, as written in a question."},
        "meaning": _TEXT | {"description": "What it stands for."},
        "source": _TEXT | {"description": "Who says so."},
    },
)


def _choices() -> Schema:
    fields = {
        name: {"type": "array", "description": f"Names that {name} takes.", "items": ref("Choice")}
        for name in choices()
    }
    return object_schema("Choices by field.", list(fields), fields)
