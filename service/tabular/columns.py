"""Columns of a list: the fields of its row class, nested ones flattened.

A column has one name as key of a JSON item, as head of a CSV column and as filter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from service.catalogue.rows import Provenance
from service.validation.problems import Schema

KEEP_THEIR_NAMES = ("model", "gpu", "cluster")
"""Nested objects whose fields keep their names; fields of others are prefixed by the object's name."""
FIRST = ("name", "vendor", "family")
"""Identifying columns, which come first, and provenance columns, which come last."""
ORIGIN = "Provenance"
SCOPE = "scope"
"""Column that is `everyone` for shipped rows, which do not set it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a list."""

    name: str
    """Name of the column."""
    value: Callable[[Any], Any]
    """Its value in a row; None where unknown."""
    schema: Schema
    """JSON schema of its values, with a description."""
    path: tuple[str, ...] = ()
    """Path of the value in a row; empty where it combines several."""

    @property
    def types(self) -> frozenset[str]:
        """JSON types of its values: string, integer, number, boolean, array or null."""
        return frozenset(option["type"] for option in self._options)

    @property
    def choices(self) -> tuple[str, ...]:
        """Its possible texts, where they are a closed list."""
        return tuple(text for option in self._options for text in option.get("enum", ()) if isinstance(text, str))

    @property
    def _options(self) -> Sequence[Schema]:
        options: Sequence[Schema] = self.schema.get("anyOf", (self.schema,))
        return options


@cache
def columns_of(row: type) -> tuple[Column, ...]:
    """The columns of one kind of row."""
    origin = tuple(_spread(_definitions(Provenance), ORIGIN)) if issubclass(row, Provenance) else ()
    origin_names = {column.name for column in origin}
    own = [column for column in _spread(_definitions(row), row.__name__) if column.name not in origin_names]
    columns = (*sorted(own, key=_rank), *origin)
    if not issubclass(row, Provenance):
        return columns
    return tuple(replace(one, value=attrgetter("holds_for")) if one.name == SCOPE else one for one in columns)


def _rank(column: Column) -> int:
    return FIRST.index(column.name) if column.name in FIRST else len(FIRST)


@cache
def _definitions(row: type) -> Mapping[str, Any]:
    explained = ConfigDict(use_attribute_docstrings=True)
    rows: TypeAdapter[Any] = TypeAdapter(list[row], config=explained)  # type: ignore[valid-type]  # known at run time
    definitions: Mapping[str, Any] = rows.json_schema()["$defs"]
    return definitions


def _spread(
    definitions: Mapping[str, Any], kind: str, before: str = "", path: tuple[str, ...] = (), *, optional: bool = False
) -> Iterator[Column]:
    for field, schema in definitions[kind]["properties"].items():
        options = schema.get("anyOf", (schema,))
        nested = next((option["$ref"].rpartition("/")[2] for option in options if "$ref" in option), None)
        if nested is None:
            here = (*path, field)
            shown = _shown(_with_items(definitions, schema), optional=optional)
            yield Column(before + field, partial(_follow, here), shown, here)
        else:
            prefix = "" if field in KEEP_THEIR_NAMES else f"{field}_"
            is_optional = {"type": "null"} in options
            yield from _spread(definitions, nested, prefix, (*path, field), optional=is_optional)


def _with_items(definitions: Mapping[str, Any], schema: Schema) -> Schema:
    """The schema of a list with that of its items in it, where they are objects."""
    reference = schema.get("items", {}).get("$ref", "")
    if not reference:
        return schema
    items = definitions[reference.rpartition("/")[2]]
    fields = {name: _shown(field, optional=False) for name, field in items["properties"].items()}
    return {**schema, "items": {**_shown(items, optional=False), "properties": fields}}


def _follow(path: tuple[str, ...], row: Any) -> Any:
    """The value at the end of a path of attributes; None where a nested fact on the way is absent."""
    value = row
    for attribute in path:
        value = None if value is None else getattr(value, attribute)
    return value


def _shown(schema: Schema, *, optional: bool) -> Schema:
    """The schema of a value that is always present, null where unknown."""
    own = {key: value for key, value in schema.items() if key not in {"title", "default"}}
    if not optional or "anyOf" in own:
        return own
    meaning = own.pop("description")
    return {"anyOf": [own, {"type": "null"}], "description": meaning}
