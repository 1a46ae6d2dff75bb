"""Types of request fields that a reader of their own validates, and components that follow from a dataclass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from service.answers.names import component
from service.estimator.question import STRICT

NULL = {"type": "null"}

MOST_VALUES = 64


class ReadElsewhere:
    """A marker of values that pydantic passes on as they are."""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()


def requiring(*names: str) -> dict[str, Any]:
    """pydantic's configuration of a request whose reader asks for these fields in words of its own."""
    return {**STRICT, "json_schema_extra": {"required": list(names)}}


def described_as(kind: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """The JSON schema of a type, with the docstrings of fields as descriptions."""
    schema: JsonSchemaValue = handler(_described(kind))["prefixItems"][0]
    return schema


@cache
def _described(kind: Any) -> CoreSchema:
    """The core schema of a tuple with one value: pydantic takes no configuration for a dataclass itself."""
    return TypeAdapter(tuple[kind], config=ConfigDict(use_attribute_docstrings=True)).core_schema


@dataclass(frozen=True)
class DescribedAs(ReadElsewhere):
    """The schema of a type, built when the contract is written: starting a service builds none."""

    kind: Any

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return described_as(self.kind, handler)


@dataclass(frozen=True)
class Component(ReadElsewhere):
    """A schema that no dataclass spells, under its name in the contract."""

    name: str
    schema: Mapping[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return component(self.name, self.schema)


@dataclass(frozen=True)
class Variant(ReadElsewhere):
    """The fields of a dataclass without their defaults, some of them required, perhaps with more fields."""

    base: type
    name: str
    description: str
    required: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    """Fields of the dataclass that it has; all where empty."""
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further fields by name, with their types; they come first."""
    opened: tuple[str, ...] = ()
    """Fields that take a list of values to choose from."""

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        whole = handler.resolve_ref_schema(described_as(self.base, handler))
        fields = {name: _undefaulted(one) for name, one in whole["properties"].items() if name in (self.only or [name])}
        further = {name: described_as(kind, handler) for name, kind in self.more.items()}
        opened = {name: _or_list(fields[name]) for name in self.opened}
        return component(self.name, object_schema(self.description, further | fields | opened, self.required))


@dataclass(frozen=True)
class Patch(ReadElsewhere):
    """The fields of dataclasses as an RFC 7396 merge patch: null takes a field away, and an object is a patch too."""

    name: str
    """Name of the component in the contract, which ends in Patch."""
    bases: tuple[type, ...]
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further fields by name, with their types; they come first."""

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        fields: dict[str, Any] = {}
        for base in self.bases:
            fields = handler.resolve_ref_schema(described_as(base, handler))["properties"] | fields
        further = {name: described_as(kind, handler) for name, kind in self.more.items()}
        return _patch(self.name, further | fields, handler)


def _patch(name: str, fields: Mapping[str, Any], handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    description = f"What changes in the {name.removesuffix('Patch').lower()}; null takes a field away."
    inner = {field: or_null(_patched(_undefaulted(schema), handler)) for field, schema in fields.items()}
    return component(name, object_schema(description, inner))


def _patched(schema: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """The schema of a field, an object in it as a patch of that object."""
    if "anyOf" in schema:
        return schema | {"anyOf": [_patched(option, handler) for option in schema["anyOf"]]}
    whole = handler.resolve_ref_schema(schema) if "$ref" in schema else {}
    if "properties" not in whole:
        return schema
    others = {key: value for key, value in schema.items() if key != "$ref"}
    return _patch(f"{whole['title']}Patch", whole["properties"], handler) | others


def or_null(schema: JsonSchemaValue) -> JsonSchemaValue:
    options = schema.get("anyOf", [{key: value for key, value in schema.items() if key != "description"}])
    description = {key: schema[key] for key in ("description",) if key in schema}
    return {**description, "anyOf": [*(one for one in options if one != NULL), NULL]}


def object_schema(description: str, properties: Mapping[str, Any], required: Sequence[str] = ()) -> JsonSchemaValue:
    """The schema of an object that has no other fields than these."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
        "properties": properties,
    }


def _undefaulted(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "default"}


def _or_list(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a field that also takes a list of its values."""
    own = {key: value for key, value in schema.items() if key != "description"}
    options: Sequence[Any] = own.get("anyOf", [own])
    values = [option for option in options if option.get("type") != "null"]
    item = values[0] if len(values) == 1 else {"anyOf": values}
    several = {"type": "array", "items": item, "minItems": 1, "maxItems": MOST_VALUES}
    return {"anyOf": [*options, several], "description": schema.get("description", "")}
