"""Tables of facts in JSON files beside the modules that use them, checked against the dataclass of their rows."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, cached_property
from pkgutil import get_data
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

Key = TypeVar("Key")
Row = TypeVar("Row")


class Table(Mapping[Key, Row]):
    """One table of a file of a package, which is opened when the first row is read."""

    def __init__(self, package: str, file: str, name: str, kind: type[dict[Key, Row]]) -> None:
        self._package, self._file, self._name, self._kind = package, file, name, kind

    @cached_property
    def _rows(self) -> dict[Key, Row]:
        table = _tables(self._package, self._file)[self._name]
        rows: dict[Key, Row] = parsed(self._kind, table, f"{self._file}: {self._name}")
        return rows

    def __getitem__(self, key: Key) -> Row:
        return self._rows[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@cache
def _tables(package: str, file: str) -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(get_data(package, file) or b"", object_pairs_hook=_unique)
    return tables


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"{max(names, key=names.count)}: stands twice in one row")
    return dict(pairs)


def parsed(kind: Any, value: Any, place: str) -> Any:
    """A value of a table as a dataclass, dict, tuple, literal, optional or plain type; ValueError names its place."""
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return parsed(arguments[0], value, place)
    if origin is Literal and value in arguments and type(value) is type(arguments[0]):
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(parsed(arguments[0], one, f"{place}[{index}]") for index, one in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {
            parsed(arguments[0], key, place): parsed(arguments[1], one, f"{place}.{key}") for key, one in value.items()
        }
    if is_dataclass(kind) and isinstance(value, dict):
        return _row(kind, value, place)
    raise ValueError(f"{place}: {value!r} is not {kind if origin else kind.__name__}")


def _row(kind: Any, value: dict[str, Any], place: str) -> Any:
    known = {one.name: one for one in fields(kind)}
    unknown = value.keys() - known.keys()
    missing = {name for name, one in known.items() if one.default is MISSING} - value.keys()
    if unknown or missing:
        names, problem = (unknown, "no field of") if unknown else (missing, "missing in")
        raise ValueError(f"{place}.{min(names)}: {problem} {kind.__name__}")
    return kind(**{name: parsed(known[name].type, one, f"{place}.{name}") for name, one in value.items()})
