"""The index of the estimator's formulas from their docstrings: equation, unit, source."""

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import getdoc, getmembers, getsource, isfunction
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from service import estimator
from service.estimator import question
from service.estimator.explain.explanation import read_docstring
from service.source_tree import write_generated

INDEX = Path(estimator.__file__).with_name("README.md")
"""File of the index: beside the formulas."""

_LETTER = re.compile(r"(?P<meaning>[^,;:.(]+), (?P<letter>[A-Za-z])(?=[ ;]|\.(?!\w))")
_NEXT_CASE = re.compile(r"\n|  +")

_HEADER = """\
# Formulas

Written by `traincost write-formulas` from the docstrings of this folder; a test compares the two.
Inside, every quantity is in base units: byte, s, FLOP, token, USD. [1] is a plain number.

## Letters

| letter | field | meaning |
|---|---|---|
"""


def formula_index() -> str:
    """The formulas of the estimator by file, each with its equation, unit and source."""
    letters = "".join(f"| {letter} | `{field}` | {meaning} |\n" for letter, field, meaning in _letters())
    return _HEADER + letters + "".join(_section(module) for module in _modules())


def write_formula_index() -> Path:
    """The index, written beside the formulas."""
    return write_generated(INDEX, lambda: formula_index().encode())


def _modules() -> Iterator[ModuleType]:
    for found in sorted(walk_packages(estimator.__path__, f"{estimator.__name__}."), key=lambda found: found.name):
        yield import_module(found.name)


def _formulas(module: ModuleType) -> list[Callable[..., Any]]:
    """Public functions of a module with an equation, in the order of the file."""
    own = [f for name, f in getmembers(module, isfunction) if f.__module__ == module.__name__ and name[0] != "_"]
    stated = [function for function in own if "Formula" in read_docstring(function).sections]
    return sorted(stated, key=lambda function: function.__code__.co_firstlineno)


def _section(module: ModuleType) -> str:
    rows = "".join(_row(function) for function in _formulas(module))
    if not rows:
        return ""
    path = Path(str(module.__file__)).relative_to(INDEX.parent).as_posix()
    question_answered = (getdoc(module) or "").partition("\n")[0]
    table = "| quantity | equation | unit | source |\n|---|---|---|---|\n"
    return f"\n## [{path}]({path})\n\n{question_answered}\n\n{table}{rows}"


def _row(function: Callable[..., Any]) -> str:
    docstring = read_docstring(function)
    cases = (case.strip() for case in _NEXT_CASE.split(docstring.sections["Formula"]))
    equation = "<br>".join(f"`{case}`" for case in cases if case)
    cells = (
        f"`{function.__name__}`: {docstring.summary}",
        equation,
        docstring.unit or "",
        docstring.sections.get("Source", ""),
    )
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |\n"


def _letters() -> Iterator[tuple[str, str, str]]:
    """Letter, field and meaning of every field of a question whose description names a letter."""
    for node in ast.parse(getsource(question)).body:
        for field, below in zip(getattr(node, "body", []), getattr(node, "body", [])[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found = _LETTER.match(str(ast.literal_eval(below.value)))
                if found:
                    yield found["letter"], ast.unparse(field.target), found["meaning"]
