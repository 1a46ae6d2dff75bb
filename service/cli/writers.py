"""Commands that write generated files of the source tree, the index of formulas among them."""

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import getdoc, getmembers, getsource, isfunction
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Annotated, Any

import typer

from service import estimator
from service.estimator import question
from service.estimator.explain.explanation import read_docstring
from service.source_tree import write_generated

app = typer.Typer()
PANEL = "To work on traincost itself, in its source"
"""Heading of these commands in the help."""


@app.command(rich_help_panel=PANEL)
def write_accuracy() -> None:
    """Write the figures of the shipped measurements into service/calibration/README.md."""
    from service.evaluation import tables
    from service.evaluation.accuracy import shipped_accuracy

    typer.echo(tables.write_accuracy(shipped_accuracy()))


@app.command(rich_help_panel=PANEL)
def write_measurements(file: Annotated[str, typer.Argument(help="Table of measurements.")]) -> None:
    """Trim a table of measurements to the columns used and ship it (service/calibration/published)."""
    from service.evaluation import tables
    from service.evaluation.scoring import content_of

    typer.echo(tables.write_measurements(content_of(file)))


@app.command(rich_help_panel=PANEL)
def write_held_out() -> None:
    """Fit step times without each source in turn and ship what is then predicted of it."""
    from service.catalogue import shipped_catalogue
    from service.evaluation import tables

    file, spreads = tables.write_held_out(shipped_catalogue())
    typer.echo(file)
    for name, spread in sorted(spreads.items()):
        typer.echo(f"step_residuals.RESIDUALS: {name} {spread}")


@app.command(rich_help_panel=PANEL)
def write_formulas() -> None:
    """Write the index of formulas (service/estimator/README.md) from their docstrings."""
    typer.echo(write_generated(INDEX, lambda: formula_index().encode()))


@app.command(rich_help_panel=PANEL)
def write_openapi() -> None:
    """Write the contract (openapi/openapi.json) from the routes and the dataclasses."""
    from service.app import create_app
    from service.catalogue import shipped_catalogue
    from service.openapi.document import write_contract
    from service.settings import Settings

    typer.echo(write_contract(create_app(Settings(), shipped_catalogue())))


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
