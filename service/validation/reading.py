"""Dataclasses read strictly from JSON by pydantic, with their catalogue rows, and answers written as JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticSerializationError, SchemaSerializer, core_schema, to_json

from service.answers.estimates import Source, SourceKind
from service.answers.names import INLINE, WIRE_NAMES
from service.catalogue import (
    SHIPPED,
    CalibrationRow,
    Catalogue,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    Row,
    key_of,
)
from service.catalogue.indexes import Found
from service.catalogue.rows import Purchase
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.constants import UNWRITTEN
from service.estimator.question import Name
from service.validation.problems import not_an_object, not_json, problems_of, unknown_field

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
    return {
        name: item
        for field, value in members.items()
        for name, item in (value.items() if field == inline else ((field, value),))
    }


@cache
def _serializer(kind: type) -> SchemaSerializer:
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
    number, *bounds = get_args(kind)
    limits = [getattr(bound, name, None) for bound in bounds for name in ("le", "lt")]
    is_exact = any(limit is not None and limit <= LARGEST_EXACT for limit in limits)
    return EXACT.get(number) if is_exact else None


def _union_schema(kinds: list[Any], definitions: dict[str, CoreSchema]) -> CoreSchema:
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
EXACT: Mapping[Any, CoreSchema] = {int: core_schema.int_schema(), float: core_schema.float_schema()}
"""Schemas of numbers whose bounds keep them exact."""


Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Spec]):
    """One object read from a request."""

    spec: Spec
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    """Catalogue rows that it uses."""


def assumptions_of(match: Found[Any]) -> tuple[str, ...]:
    return () if match.assumption is None else (match.assumption,)


def with_rows(parsed: Parsed[Spec], catalogue: Catalogue, *rows: Row | None) -> Parsed[Spec]:
    """An object with the catalogue rows that it uses as sources (custom rows, all prices), and notes on them."""
    sources = tuple(source_of(row) for row in rows if row is not None and (type(row) in PRICES or row.owner != SHIPPED))
    return with_sources(parsed, catalogue, sources) if sources else parsed


def with_sources(parsed: Parsed[Spec], catalogue: Catalogue, sources: tuple[Source, ...]) -> Parsed[Spec]:
    """An object with more sources, and with notes on custom rows among them."""
    notes = (
        f"{_described(one)}, as of {one.as_of}; its source: {one.source}" for one in sources if one.owner != SHIPPED
    )
    return replace(
        parsed,
        assumptions=(*parsed.assumptions, *notes),
        warnings=(*warnings_of(sources, catalogue), *parsed.warnings),
        sources=(*parsed.sources, *sources),
    )


def warnings_of(sources: Iterable[Source], catalogue: Catalogue) -> tuple[str, ...]:
    """Warnings about rows of another owner that an admin promoted to everyone."""
    others = (one for one in sources if one.owner not in (SHIPPED, catalogue.viewer) and one.scope == "everyone")
    return tuple(f"{_described(one)} that an admin promoted to everyone" for one in others)


def source_of(row: Row) -> Source:
    """A catalogue row as a source of an answer."""
    return Source(
        kind=KINDS[type(row)],
        name=row.calibration.id if isinstance(row, CalibrationRow) else key_of(row),
        owner=row.owner,
        scope=row.holds_for,
        source=row.source,
        as_of=row.as_of,
    )


def purchase_of(row: GpuRow, purchase: Purchase) -> Source:
    """The purchase price of a GPU as a source of an answer."""
    return replace(source_of(row), kind="price", source=purchase.source, as_of=purchase.as_of)


def _described(source: Source) -> str:
    return f"{source.kind.replace('_', ' ')} {source.name} is a row of {source.owner}"


KINDS: Mapping[type[Row], SourceKind] = {
    ModelRow: "model",
    GpuRow: "gpu",
    ClusterRow: "cluster",
    PriceRow: "price",
    RateCardRow: "rate_card",
    RegionRow: "region",
    CalibrationRow: "calibration",
}

PRICES = (PriceRow, RateCardRow)
"""Row kinds whose shipped rows are sources too."""


LONGEST_NAME: int = get_args(Name)[1].max_length


def read_spec(
    kind: type[Spec], value: object, path: str, *, beside: tuple[str, ...] = (), whole: str = "the question"
) -> Spec:
    """The dataclass that a JSON object spells; `whole` names the object in a problem without a path."""
    hashable: type = kind  # mypy treats type[Spec] as unhashable
    known = field_names(hashable)
    if not isinstance(value, Mapping):
        raise Refused(not_an_object(path, known))
    unknown = [name for name in value if name not in known]
    problems = [unknown_field(path, name, {*known, *beside}, whole) for name in unknown[:MOST_PROBLEMS]]
    try:
        given = {name: item for name, item in value.items() if name in known}
        for name in _numbered_choices(hashable) & given.keys():
            if isinstance(given[name], (bool, float)):
                given[name] = str(given[name])  # pydantic takes true and 1.0 for 1
        text = to_json(given)
        spec: Spec = adapter_of(hashable).validate_json(text, strict=True)
    except PydanticSerializationError:
        raise Refused(*problems, not_json(path)) from None
    except ValidationError as error:
        raise Refused(*problems, *problems_of(schema_of(hashable), error, path)) from None
    if problems:
        raise Refused(*problems)
    return spec


def read_name(value: object, path: str) -> str:
    """A name to look up in the catalogue."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME:
        return value
    message = f"{path.rpartition('.')[2]} is not a name of 1 to {LONGEST_NAME} characters"
    raise Refused(Problem(field=path, code="not_text", message=message, fix="give a name, in quotes"))


@cache
def field_names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def fields_of(spec: Any) -> dict[str, Any]:
    """A flat dataclass as the JSON object that would spell it."""
    kind: type = type(spec)
    return {name: getattr(spec, name) for name in field_names(kind)}


@cache
def schema_of(kind: type) -> Mapping[str, Any]:
    """JSON schema of one dataclass, built once; pydantic leaves out the descriptions of inherited fields."""
    schema = adapter_of(kind).json_schema()
    bases = (schema_of(base)["properties"] for base in kind.__bases__ if is_dataclass(base))
    for name, inherited in (field for base in bases for field in base.items()):
        schema["properties"][name] = {"description": inherited.get("description", ""), **schema["properties"][name]}
    return schema


@cache
def _numbered_choices(kind: type) -> frozenset[str]:
    return frozenset(name for name, hint in get_type_hints(kind).items() if _is_numbered_choice(hint))


def _is_numbered_choice(hint: Any) -> bool:
    options = get_args(hint)
    if get_origin(hint) is Literal:
        return any(isinstance(option, int) for option in options)
    return get_origin(hint) in {Union, UnionType} and any(map(_is_numbered_choice, options))
