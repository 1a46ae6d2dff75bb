"""Strict reading of JSON into dataclasses, and findings as problems."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

from pydantic._internal import _fields


def install() -> None:
    """Have pydantic read descriptions from here."""
    if hasattr(_fields, "extract_docstrings_from_cls"):
        _fields.extract_docstrings_from_cls = descriptions_of


def descriptions_of(kind: type, use_inspect: bool = False) -> dict[str, str]:  # noqa: ARG001, FBT001, FBT002 - pydantic's
    """The docstring below each field of a class and of those that it extends; none where its source cannot be read."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        with suppress(OSError, TypeError, KeyError):
            file = inspect.getsourcefile(one)
            found |= {} if file is None else _of_module(file)[one.__qualname__]
    return found


@cache
def _of_module(file: str) -> Mapping[str, dict[str, str]]:
    """Descriptions of every class of a module, by its qualified name."""
    found: dict[str, dict[str, str]] = {}
    for name, definition in _definitions(ast.parse(Path(file).read_bytes()), ""):
        found.setdefault(name, dict(_described(definition.body)))
    return found


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, child
            yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _definitions(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.stmt):
            yield from _definitions(child, prefix)


def _described(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield field.target.id, inspect.cleandoc(text.value)


install()
