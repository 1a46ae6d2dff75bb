"""Every number that is not derived here has a source."""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from service.catalogue.choices import choices
from tests.cases import each_case
from tests.house.source import ROOT, each_of, nodes_of, python_files, tree_of

FILES = [path for path in python_files("service/estimator") if path.name != "samples.py"]


def _module_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def _sourced(value: Any) -> Iterator[Any]:
    """Every dataclass instance with a source field, at any depth of a table."""
    if isinstance(value, Mapping):
        for row in value.values():
            yield from _sourced(row)
    elif isinstance(value, tuple | list):
        for row in value:
            yield from _sourced(row)
    elif is_dataclass(value) and not isinstance(value, type) and "source" in {field.name for field in fields(value)}:
        yield value


ROWS = [
    pytest.param(row, id=f"{_module_of(path)}.{name}")
    for path in FILES
    for name, table in vars(importlib.import_module(_module_of(path))).items()
    for row in _sourced(table)
]


def test_tables_are_found() -> None:
    assert len(ROWS) > 30


@each_case("row", ROWS)
def test_row_of_a_table_has_a_source(row: Any) -> None:
    assert row.source.strip(), f"{type(row).__name__} without a source: {row}"


def _constants(path: Path) -> Iterator[tuple[str, str]]:
    """Constants of a module that hold nothing but measured numbers, each with the text below it."""
    body = tree_of(path).body
    for statement, after in pairwise([*body, ast.Pass()]):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        name = statement.targets[0].id
        held = [node.value for node in ast.walk(statement.value) if isinstance(node, ast.Constant)]
        if name.isupper() and any(isinstance(v, float) for v in held) and all(isinstance(v, int | float) for v in held):
            below = after.value if isinstance(after, ast.Expr) else None
            yield name, str(below.value) if isinstance(below, ast.Constant) else ""


@each_of(FILES)
def test_measured_constant_has_a_source(path: Path) -> None:
    bare = [name for name, said in _constants(path) if "Source:" not in said]
    assert not bare, f"{bare} do not say below them where the number comes from (Source: ...)"


def test_every_choice_of_a_question_has_a_meaning_and_a_source() -> None:
    bare = [
        f"{field}: {row.name}" for field, rows in choices().items() for row in rows if not (row.source and row.meaning)
    ]
    assert bare == []


def _targets(node: ast.stmt) -> list[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target for target in targets if isinstance(target, ast.Name)]


ESTIMATOR_NAMES = {
    path.stem: {node.name for node in tree_of(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    | {target.id for node in tree_of(path).body for target in _targets(node)}
    for path in python_files("service/estimator")
}
"""Top-level names of each module of the estimator."""


@each_of(FILES)
def test_a_source_names_a_module_that_has_the_name(path: Path) -> None:
    known = {name for names in ESTIMATOR_NAMES.values() for name in names}
    for text in (
        node.value for node in nodes_of(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        for module, name in re.findall(
            r"(?<![\w./@])([a-z_]+)\.(\w+)", text.partition("Source:")[2].partition(">>>")[0]
        ):
            assert name not in known or name in ESTIMATOR_NAMES.get(module, ()), f"{module}.{name} is no name"
