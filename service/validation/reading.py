"""Dataclasses read strictly from JSON by pydantic, with their assumptions, warnings and catalogue rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from service.answers.estimates import Source, SourceKind
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
from service.estimator.question import Name
from service.validation.problems import not_an_object, not_json, problems_of, unknown_field
from service.validation.serialization import adapter_of

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
    """Assumptions of a catalogue lookup."""
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
"""Source kinds of catalogue rows."""

PRICES = (PriceRow, RateCardRow)
"""Row kinds whose shipped rows are sources too."""


LONGEST_NAME: int = get_args(Name)[1].max_length
"""Longest name in a question, in characters."""


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
    """The fields of a dataclass."""
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
