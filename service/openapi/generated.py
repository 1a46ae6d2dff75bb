"""FastAPI's document in the form of the contract: named components, no titles, answers with every field."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from service.answers.names import COMPONENT, EACH, INLINED, OWN_DESCRIPTION, WIRE_NAMES
from service.api.openapi import Schema
from service.validation.question_parts import ModelFields

FASTAPI_SCHEMAS = {"HTTPValidationError", "ValidationError"}
"""FastAPI's own error form, which this service never sends."""

NAMED_BY_ANSWERS: tuple[Any, ...] = (ModelFields,)
"""Parts of a question that answers refer to by name, and no request defines."""

NAMED_PLACES = ("properties", "schemas")
"""Keys below which names stand, not keywords."""

REFERENCE = "#/components/schemas/"


def tidied(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Schema]]:
    """The paths and the component schemas of a document that FastAPI generated."""
    generated = document.get("components", {}).get("schemas", {})
    schemas = {name: without_titles(one) for name, one in generated.items() if name not in FASTAPI_SCHEMAS}
    hoisted: dict[str, Schema] = {}
    paths = without_titles(document["paths"])
    for operation in (one for methods in paths.values() for one in methods.values() if "parameters" in one):
        operation["parameters"] = [each for one in operation["parameters"] for each in _spread(one)]
    for kind in NAMED_BY_ANSWERS:
        with_references(without_titles(TypeAdapter(kind).json_schema(ref_template=f"{REFERENCE}{{model}}")), hoisted)
    paths = with_references(paths, hoisted)
    schemas = {name: with_references(one, hoisted) for name, one in schemas.items()}
    answered = answered_by(paths, schemas | hoisted)
    complete = {name: _complete(one) if name in answered else one for name, one in schemas.items()}
    return paths, {name: _defaults_in_words(_as_on_the_wire(one)) for name, one in (complete | hoisted).items()}


def without_titles(value: Any) -> Any:
    """A schema without titles, which repeat the names of fields."""
    if isinstance(value, list):
        return [without_titles(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # FastAPI gives the bounds of integers as doubles
    if not isinstance(value, Mapping):
        return value
    return {
        key: {name: without_titles(one) for name, one in item.items()} if key in NAMED_PLACES else without_titles(item)
        for key, item in value.items()
        if not (key == "title" and isinstance(item, str))
    }


def _spread(parameter: Schema) -> list[Schema]:
    """The parameters that one describes together, each by itself, for clients that serialise no objects."""
    schema = parameter.get("schema", {})
    if EACH not in schema:
        return [parameter]
    return [{"name": name, "in": "query", "schema": field} for name, field in schema["properties"].items()]


def with_references(value: Any, hoisted: dict[str, Schema]) -> Any:
    """A part of the document with references in place of the schemas that name their component."""
    if isinstance(value, list):
        return [with_references(item, hoisted) for item in value]
    if not isinstance(value, Mapping):
        return value
    inner = {
        key: with_references(item, hoisted) for key, item in value.items() if key not in (COMPONENT, OWN_DESCRIPTION)
    }
    name, is_reference = value.get(COMPONENT), inner.keys() <= {"description"}
    if not isinstance(name, str):
        return inner
    own = value.get(OWN_DESCRIPTION, None if is_reference else inner.get("description"))
    if not is_reference:
        hoisted.setdefault(name, inner | ({"description": own} if own else {}))
    use = {"description": inner["description"]} if inner.get("description", own) != own else {}
    return {"$ref": f"{REFERENCE}{name}", **use}


def answered_by(paths: Mapping[str, Any], schemas: Mapping[str, Schema]) -> set[str]:
    """Components that answers reach and requests do not."""
    operations = [operation for methods in paths.values() for operation in methods.values()]
    asked = reached([(one.get("requestBody"), one.get("parameters")) for one in operations], schemas)
    return reached([one["responses"] for one in operations], schemas) - asked


def reached(parts: Iterable[Any], schemas: Mapping[str, Schema]) -> set[str]:
    """Names of the component schemas that parts of the document refer to, one through another."""
    reached: set[str] = set()
    new = set(_references(list(parts)))
    while new:
        reached |= new
        new = {name for one in new for name in _references(schemas.get(one))} - reached
    return reached


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)
    elif isinstance(value, Mapping):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(REFERENCE):
            yield reference.removeprefix(REFERENCE)
        for item in value.values():
            yield from _references(item)


def _complete(schema: Schema) -> Schema:
    """The schema of an answer: every field is always there, so none has a default."""
    if "properties" not in schema:
        return schema
    fields = {
        name: {key: item for key, item in one.items() if key != "default"} for name, one in schema["properties"].items()
    }
    return schema | {"required": list(fields), "properties": fields}


def _as_on_the_wire(schema: Schema) -> Schema:
    """A schema with the names and number types of JSON: FLOP counts are doubles."""
    if "properties" not in schema:
        return schema
    inlined = {name: one for name, one in schema["properties"].items() if INLINED in one}
    fields = {WIRE_NAMES.get(name, name): _as_double(name, one) for name, one in schema["properties"].items()}
    fields = {name: one for name, one in fields.items() if name not in inlined}
    required = [WIRE_NAMES.get(name, name) for name in schema.get("required", ()) if name not in inlined]
    whole = {**schema, "properties": fields, **({"required": required} if required else {})}
    for one in inlined.values():
        whole["additionalProperties"] = one["additionalProperties"]
    return whole


def _as_double(name: str, schema: Schema) -> Schema:
    if not name.endswith("_flop"):
        return schema
    options = [{"type": "number"} if one.get("type") == "integer" else one for one in schema.get("anyOf", ())]
    return schema | ({"anyOf": options} if options else {"type": "number"})


def _defaults_in_words(schema: Schema) -> Schema:
    """Move defaults into descriptions: generated clients treat a field with a `default` as always present."""
    if "properties" not in schema:
        return schema
    return schema | {"properties": {name: _default_in_words(one) for name, one in schema["properties"].items()}}


def _default_in_words(field: Schema) -> Schema:
    default = field.get("default")
    schema = {key: value for key, value in field.items() if key != "default"}
    if default in (None, [], "") or isinstance(default, Mapping):
        return schema
    words = default if isinstance(default, str) else json.dumps(default)
    return schema | {"description": f"{field.get('description', '')} Default: {words}.".lstrip()}
