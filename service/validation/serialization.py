"""Answers as JSON: dataclasses become plain values, spelled the same everywhere.

pydantic-core writes an answer by the types of its fields, in half the time of a walk in Python. Its schemas are made
here, in 3 ms: those of `TypeAdapter` also validate, and take a fifth of a second for the answer of an estimate.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import CoreSchema, PydanticSerializationError, SchemaSerializer, core_schema, to_json

from service.answers.names import INLINE, WIRE_NAMES
from service.errors import Problem, Refused
from service.estimator.constants import UNWRITTEN

DIGEST_CHARACTERS = 32

LARGEST_EXACT = 1 << 53
"""Integers up to here are doubles too; beyond, readers of JSON would round them each in their own way."""


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """What reads and writes values of a type, made when it is first needed: a large one takes a tenth of a second."""
    return TypeAdapter(kind)


class NotFinite(Refused):
    """Values inside all bounds lead together to a number that no double holds, which is never sent."""

    def __init__(self) -> None:
        super().__init__(
            Problem(
                field="",
                code="not_finite",
                message="these values together lead to a number beyond all bounds, so the answer would mean nothing",
                fix="give values nearer to those of a real job, above all rates and prices far from zero",
            )
        )


def to_wire(value: Any) -> Any:
    """JSON-ready form of an answer or of one of its parts."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if -LARGEST_EXACT <= value <= LARGEST_EXACT else float(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise NotFinite
        return value
    if isinstance(value, (tuple, list)):
        return [to_wire(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): to_wire(item) for name, item in value.items()}
    names, inline = _wire_fields(value.__class__)
    members = {wire_name: to_wire(getattr(value, name)) for name, wire_name in names}
    return members if inline is None else _spread(members, inline)


def to_bytes(value: Any) -> bytes:
    """The one JSON text of an answer: same answer, same bytes."""
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(map(to_bytes, value)) + b"]"
    if not is_dataclass(value):
        return to_json(to_wire(value))
    try:
        text = _serializer(value.__class__).to_json(value, by_alias=True, warnings=False, fallback=to_wire)
    except PydanticSerializationError:
        return to_json(to_wire(value))  # raises the error of a part by its own name
    if b"NaN" in text or b"Infinity" in text:
        to_wire(value)  # refuses such a number; a text may hold the word
    return text


def refuse_infinite(*parts: Any) -> None:
    """Refuse an answer whose numbers no caller could compute with."""
    to_bytes(parts)


def digest_of(content: bytes) -> str:
    """What tells one content from any other, in ids and ETags."""
    return sha256(content).hexdigest()[:DIGEST_CHARACTERS]


@cache
def _wire_fields(kind: type) -> tuple[tuple[tuple[str, str], ...], str | None]:
    """Fields of a dataclass with their names on the wire, and the one whose items stand there themselves."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} has no wire form")
    inline = next((f.name for f in fields(kind) if f.metadata == INLINE), None)
    return tuple((f.name, WIRE_NAMES.get(f.name, f.name)) for f in fields(kind) if f.metadata != UNWRITTEN), inline


def _spread(members: dict[str, Any], inline: str) -> dict[str, Any]:
    """An object with the items of one field in the place of the field."""
    return {
        name: item
        for field, value in members.items()
        for name, item in (value.items() if field == inline else ((field, value),))
    }


@cache
def _serializer(kind: type) -> SchemaSerializer:
    """What writes a dataclass as JSON."""
    definitions: dict[str, CoreSchema] = {}
    schema = _schema_of(kind, definitions)
    whole = core_schema.definitions_schema(schema, list(definitions.values()))
    return SchemaSerializer(whole, FINITE_OR_NAMED)


def _schema_of(kind: Any, definitions: dict[str, CoreSchema]) -> CoreSchema:
    """How pydantic-core writes values of a type; `to_wire` converts what the type leaves open."""
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_schema(kind, definitions)
    origin, arguments = get_origin(kind), get_args(kind)
    schema = PLAIN.get(kind, ANY)
    if origin is Annotated:
        schema = _number_schema(kind) or _schema_of(arguments[0], definitions)
    elif origin is Literal:
        schema = core_schema.literal_schema(list(arguments))
    elif origin is tuple and arguments[1:] == (Ellipsis,):
        schema = core_schema.tuple_schema([_schema_of(arguments[0], definitions)], variadic_item_index=0)
    elif origin is Mapping and arguments[0] is str:
        schema = core_schema.dict_schema(PLAIN[str], _schema_of(arguments[1], definitions))
    elif origin in (Union, UnionType):
        schema = _union_schema([one for one in arguments if one is not NoneType], definitions)
    return schema


def _number_schema(kind: Any) -> CoreSchema | None:
    """Schema of a number whose bounds keep it exact."""
    number, *bounds = get_args(kind)
    limits = [getattr(bound, name, None) for bound in bounds for name in ("le", "lt")]
    is_exact = any(limit is not None and limit <= LARGEST_EXACT for limit in limits)
    return EXACT.get(number) if is_exact else None


def _union_schema(kinds: list[Any], definitions: dict[str, CoreSchema]) -> CoreSchema:
    """Schema of one of some types, or null."""
    if len(kinds) == 1:
        return core_schema.nullable_schema(_schema_of(kinds[0], definitions))
    if all(is_dataclass(kind) or get_origin(kind) is Literal for kind in kinds):
        return core_schema.nullable_schema(core_schema.union_schema([_schema_of(kind, definitions) for kind in kinds]))
    return ANY


def _dataclass_schema(kind: type, definitions: dict[str, CoreSchema]) -> CoreSchema:
    names, inline = _wire_fields(kind)
    subclasses: list[type] = kind.__subclasses__()
    is_extended = any(_wire_fields(one)[0] != names for one in subclasses)
    if inline is not None or is_extended:
        return ANY  # a mapping's items are among its fields, or a value may have more fields than its type
    reference = f"{kind.__module__}.{kind.__qualname__}"
    if reference not in definitions:
        definitions[reference] = ANY  # while its own fields refer to it
        hints, wire_names = get_type_hints(kind, include_extras=True), dict(names)
        written = [
            core_schema.dataclass_field(
                name=field.name,
                schema=_schema_of(hints[field.name], definitions),
                serialization_alias=wire_names.get(field.name),
                serialization_exclude=field.name not in wire_names,
            )
            for field in fields(kind)
        ]
        arguments = core_schema.dataclass_args_schema(kind.__name__, written)
        definitions[reference] = core_schema.dataclass_schema(
            kind, arguments, [field.name for field in fields(kind)], ref=reference, config=FINITE_OR_NAMED
        )
    return core_schema.definition_reference_schema(reference)


def _exact(value: Any) -> Any:
    """A number; as a double where readers of JSON would round it."""
    return value if -LARGEST_EXACT <= value <= LARGEST_EXACT else float(value)


def _written_by(function: Any) -> CoreSchema:
    return core_schema.any_schema(serialization=core_schema.plain_serializer_function_ser_schema(function))


FINITE_OR_NAMED = core_schema.CoreConfig(ser_json_inf_nan="constants")
"""What is not finite is written by its name, so that it can be found and refused; null would pass for unknown."""
ANY = _written_by(to_wire)
PLAIN: Mapping[Any, CoreSchema] = {
    int: _written_by(_exact),
    float: core_schema.union_schema([core_schema.float_schema(), _written_by(_exact)]),  # Python for other numbers
    str: core_schema.str_schema(),
    bool: core_schema.bool_schema(),
}
"""Schemas of plain values."""
EXACT: Mapping[Any, CoreSchema] = {int: core_schema.int_schema(), float: core_schema.float_schema()}
"""Schemas of numbers whose bounds keep them exact."""
