"""The component schemas of the contract: generated from the same dataclasses that read questions and hold answers."""

from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from service.api.problems import KINDS, MOST_ERRORS
from service.estimator.question import Cluster, Layout, Model, Price, Recipe
from service.workflows import estimates
from service.workflows.checks import Check, Limits
from service.workflows.clusters import Nodes
from service.workflows.prices import CataloguePrice
from service.workflows.wire import WIRE_NAMES

Schema = dict[str, Any]

ASKED = (Model, Recipe, Layout, Cluster, Nodes, Price, CataloguePrice, Limits)
"""Nouns that a request spells."""
MODEL_FORMS = ("Model-Input", "ChangedModel", "ImportedModel")
"""Components that spell a model, beside its name."""

ANSWERED = (estimates.Grounds, estimates.Answer, estimates.MemoryAnswer, estimates.FlopAnswer, estimates.GpuHoursAnswer)
"""What estimating answers hold; first what all of them share, whose docstrings pydantic does not inherit."""


class WireSchema(GenerateJsonSchema):
    """JSON schema as answers really look: no defaults, every field there, FLOP counts as doubles."""

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
    """Every schema that estimating requests and answers refer to.

    Returns:
        JSON schemas by component name
    """
    kinds = [(kind, "validation") for kind in ASKED] + [(kind, "serialization") for kind in (*ANSWERED, Check)]
    _, document = TypeAdapter.json_schemas(
        [(kind, cast(JsonSchemaMode, mode), TypeAdapter(kind)) for kind, mode in kinds],
        schema_generator=WireSchema,
        ref_template="#/components/schemas/{model}",
    )
    generated: dict[str, Schema] = document["$defs"]
    spelled = {name: _as_on_the_wire(schema) for name, schema in generated.items()}
    shared = spelled.pop("Grounds")["properties"]
    for kind in ANSWERED[1:]:
        spelled[kind.__name__]["properties"] |= shared
    return spelled | _request_schemas(spelled) | {"Problem": PROBLEM}


def _as_on_the_wire(schema: Schema) -> Schema:
    """A dataclass's schema with the field names and number types that `to_wire` gives it."""
    properties = {WIRE_NAMES.get(name, name): _as_double(name, s) for name, s in schema.get("properties", {}).items()}
    required = [WIRE_NAMES.get(name, name) for name in schema.get("required", ())]
    return schema | ({"properties": properties} if properties else {}) | ({"required": required} if required else {})


def _as_double(name: str, schema: Schema) -> Schema:
    if not name.endswith("_flop"):
        return schema
    options = [{"type": "number"} if s.get("type") == "integer" else s for s in schema.get("anyOf", ())]
    return schema | ({"anyOf": options} if options else {"type": "number"})


def _request_schemas(spelled: dict[str, Schema]) -> dict[str, Schema]:
    """The request body and the forms in which it takes a model, a cluster and a price."""
    node_count = spelled["Nodes"]["properties"]
    limits = _one_of("What the run may take at most; null for no limit.", _ref("Limits"), {"type": "null"})
    return {
        "QuestionRequest": _question("One configuration to estimate: four nouns, and a price if the cost is wanted."),
        "CheckRequest": _question("A job that wants to start: a question, and what the run may take.", limits=limits),
        "ChangedModel": _changed("A model preset with some of its fields given anew.", spelled["Model-Input"], {}),
        "ChangedCluster": _changed("A cluster preset, resized or changed.", spelled["Cluster-Input"], node_count),
        "ImportedModel": {
            "type": "object",
            "description": "A model as its Hugging Face config.json describes it.",
            "additionalProperties": False,
            "required": ["hf_config"],
            "properties": {"hf_config": CONFIG},
        },
    }


def _question(description: str, **more: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "required": ["model", "recipe", "cluster"],
        "properties": {
            "model": _one_of("What is trained.", NAME, *map(_ref, MODEL_FORMS)),
            "recipe": _ref("Recipe-Input"),
            "layout": _one_of("How it is divided; null for the defaults.", _ref("Layout-Input"), {"type": "null"}),
            "cluster": _one_of("What it runs on.", NAME, _ref("Cluster-Input"), _ref("ChangedCluster")),
            "price": _one_of("What it costs.", _ref("Price"), _ref("CataloguePrice"), {"type": "null"}),
            **more,
        },
    }


def _changed(description: str, noun: Schema, more: Schema) -> Schema:
    fields = {name: {k: v for k, v in s.items() if k != "default"} for name, s in noun["properties"].items()}
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "required": ["preset"],
        "properties": {"preset": NAME, **more, **fields},
    }


def _one_of(description: str, *options: Schema) -> Schema:
    return {"description": description, "anyOf": list(options)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200, "description": "A name, alias or Hugging Face id."}

CONFIG: Schema = {"type": "object", "required": ["model_type"], "description": "The config.json."}

_TEXT: Schema = {"type": "string"}

PROBLEM: Schema = {
    "type": "object",
    "description": "What went wrong, as RFC 9457 has it; nothing of the request is repeated.",
    "required": ["type", "title", "status", "code", "detail", "request_id", "errors"],
    "properties": {
        "type": _TEXT | {"description": "Where this kind of problem is described."},
        "title": _TEXT | {"description": "This kind of problem in words."},
        "status": {"type": "integer", "description": "HTTP status."},
        "code": {"enum": list(KINDS), "description": "This kind of problem, stable."},
        "detail": _TEXT | {"description": "What went wrong this time."},
        "request_id": _TEXT | {"description": "As in the header X-Request-Id and in the service's log."},
        "errors": {
            "type": "array",
            "maxItems": MOST_ERRORS,
            "description": "One entry for each thing to mend.",
            "items": {
                "type": "object",
                "required": ["code", "message", "fix"],
                "properties": {
                    "pointer": _TEXT | {"description": "JSON pointer of the field in the body."},
                    "parameter": _TEXT | {"description": "Name of the query parameter, instead of a pointer."},
                    "code": _TEXT | {"description": "Broken rule, stable."},
                    "message": _TEXT | {"description": "What is wrong and why it matters."},
                    "fix": _TEXT | {"description": "What to do about it."},
                },
            },
        },
    },
}
