"""Every formula states its equation, units and source, and has an example to check by hand.

That modules, classes and formulas are documented at all is the linter's rule (ruff D); these rules are the house's own.
"""

import ast
from pathlib import Path

import pytest

from service.estimator.explain.docstrings import Docstring, parse_docstring, unit_of
from service.units import DIMENSIONS
from tests.cases import each_case
from tests.house import source

SYMBOLS = {
    "1": "fraction",
    "1/GPU-h": "per_gpu_hour",
    "1/instance-h": "per_instance_hour",
    "FLOP": "flop",
    "FLOP/s": "flop_per_s",
    "PFLOP-day": "pflop_days",
    "USD": "usd",
    "USD/GB": "usd_per_gb",
    "USD/GB-month": "usd_per_gb_month",
    "USD/h": "usd_per_gpu_hour",
    "USD/kW-month": "usd_per_kw_month",
    "USD/kWh": "usd_per_kwh",
    "W": "watts",
    "a": "years",
    "byte": "bytes",
    "byte/s": "bytes_per_s",
    "d": "days",
    "h": "gpu_hours",
    "kWh": "kwh",
    "kgCO2e": "kg_co2e",
    "kgCO2e/kWh": "kg_co2e_per_kwh",
    "nat": "nats",
    "s": "seconds",
    "token": "tokens",
    "token/s": "tokens_per_s_per_gpu",
}
"""Units that a docstring may write, and the suffix that a name of that unit ends with (1: or none, for a count)."""

ARITHMETIC = source.SERVICE / "estimator" / "numeric.py"
"""Element-wise arithmetic: no quantity, so no unit, equation or source."""

FILES = source.python_files("service")
FORMULA_FILES = [path for path in source.python_files("service/estimator") if path != ARITHMETIC]
FORMULAS = [
    pytest.param(path, function, id=f"{path.stem}.{function.name}")
    for path in FORMULA_FILES
    for function in source.public_functions(path)
    if source.is_number(function.returns)
]


NOUNS = ("question", "answer")
"""Modules of the types that go over the wire."""


def _docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Docstring:
    return parse_docstring(ast.get_docstring(function) or "")


def test_formulas_are_found() -> None:
    assert len(FORMULAS) > 20


def test_every_symbol_stands_for_a_suffix_of_the_units_table() -> None:
    assert set(SYMBOLS.values()) <= DIMENSIONS.keys()


@source.each_of(FILES)
def test_module_opens_with_what_it_is_for(path: Path) -> None:
    if path.name == "__init__.py" and not source.tree_of(path).body:
        return
    assert ast.get_docstring(source.tree_of(path)), "has no docstring that says what it is for"


@each_case(("path", "function"), FORMULAS)
def test_formula_is_documented_in_full(path: Path, function: ast.FunctionDef) -> None:
    said = _docstring(function)
    has_numbers = any(map(source.is_number, source.arguments_of(function).values()))
    needed = {"Formula", "Returns", "Source"} | ({"Args"} if has_numbers else set())
    missing = sorted(name for name in needed if not said.sections.get(name))
    assert not missing, f"{source.shown(path)}: {function.name} lacks {missing}"
    assert said.has_example, f"{source.shown(path)}: {function.name} lacks an example to check by hand"


@each_case(("path", "function"), FORMULAS)
def test_formula_names_the_unit_of_every_number(path: Path, function: ast.FunctionDef) -> None:
    said = _docstring(function)
    units = {"what it returns": said.unit} | {
        name: unit_of(said.arguments.get(name, ""))
        for name, annotation in source.arguments_of(function).items()
        if source.is_number(annotation)
    }
    wrong = {name: unit for name, unit in units.items() if unit not in SYMBOLS}
    assert not wrong, (
        f"{source.shown(path)}: {function.name} has no known unit for {wrong}; known are {sorted(SYMBOLS)}"
    )


@each_case(("path", "function"), FORMULAS)
def test_units_in_names_are_the_units_in_docstrings(path: Path, function: ast.FunctionDef) -> None:
    said = _docstring(function)
    written = {function.name: said.unit} | {name: unit_of(text) for name, text in said.arguments.items()}
    for name, unit in written.items():
        suffix = next((s for s in DIMENSIONS if name == s or name.endswith(f"_{s}")), None)
        if suffix and unit:
            assert SYMBOLS.get(unit) == suffix, (
                f"{source.shown(path)}: {function.name}: {name} is said to be in [{unit}]"
            )


@source.each_of(FILES)
def test_args_are_arguments(path: Path) -> None:
    """What is no number may be left out: its type says what it is."""
    for function in source.functions_of(path):
        extra = {one.arg for one in (function.args.vararg, function.args.kwarg) if one}
        assert {*_docstring(function).arguments} <= {*source.arguments_of(function), *extra}, function.name


@source.each_of([source.SERVICE / "estimator" / f"{noun}.py" for noun in NOUNS])
def test_every_field_of_the_nouns_is_documented(path: Path) -> None:
    for kind in source.public_classes(path):
        documented = {
            field.target.id
            for field, after in zip(kind.body, kind.body[1:], strict=False)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        }
        assert source.fields_of(kind).keys() <= documented, (
            f"{kind.name}: {sorted(source.fields_of(kind).keys() - documented)}"
        )
