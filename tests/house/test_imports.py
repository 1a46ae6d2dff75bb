"""Each room imports only the rooms below it, and the core only itself."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.house.source import ROOT, SERVICE, each_of, python_files, shown, tree_of

CORE_MAY_IMPORT = sys.stdlib_module_names | {"annotated_types", "service"}

LOADED = """
import sys
sys.path.insert(0, {root!r})
opened = []
def listen(event, arguments):
    if event == "open":
        opened.append(str(arguments[0]))
known = set(sys.modules)
sys.addaudithook(listen)
import {module}
for name in sorted(set(sys.modules) - known):
    print("module", name)
for path in opened:
    print("open", path)
"""


def _imported(tree: ast.AST) -> set[str]:
    """Top-level names of everything that a file imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@cache
def _import_in_a_fresh_process(module: str) -> tuple[frozenset[str], list[str]]:
    """Modules that an import loads, and the files that it opens."""
    script = LOADED.format(root=str(ROOT), module=module)
    said = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, check=True).stdout
    lines = [line.split(" ", 1) for line in said.splitlines()]
    modules = frozenset(name for kind, name in lines if kind == "module")
    return modules, [path for kind, path in lines if kind == "open"]


def _packages(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_every_room_stands_in_the_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract for contract in contracts if contract["type"] == "layers")["layers"]
    placed = {room.strip() for layer in layers for room in layer.split("|")}
    rooms = {path.relative_to(SERVICE).parts[0].removesuffix(".py") for path in python_files("service")}
    given_out = {"web"}  # programs there are fetched by operators and imported by nobody
    assert placed == rooms - {"__init__"} - given_out


@each_of([*python_files("service/estimator"), SERVICE / "errors.py", SERVICE / "units.py"])
def test_core_imports_the_standard_library_only(path: Path) -> None:
    tree = tree_of(path)
    foreign = _imported(tree) - CORE_MAY_IMPORT
    at_module_level = {name for node in tree.body for name in _imported(node) if not _is_type_checking(node)}
    assert foreign <= {"numpy"}, f"{shown(path)} imports {sorted(foreign)}"
    assert "numpy" not in at_module_level, f"{shown(path)}: import numpy where a column is seen, not before"


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) or (
        isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )


def test_importing_the_core_loads_nothing_else() -> None:
    modules, _ = _import_in_a_fresh_process("service.estimator")
    taken_by_annotated_types_where_installed = {"typing_extensions"}
    foreign = _packages(modules) - sys.stdlib_module_names - {"service"}
    assert foreign - taken_by_annotated_types_where_installed == {"annotated_types"}


def test_importing_the_core_opens_no_file_but_its_code() -> None:
    _, opened = _import_in_a_fresh_process("service.estimator")
    assert [path for path in opened if Path(path).suffix not in {".py", ".pyc"} and ".pyc." not in path] == []


ROOMS_OF = {
    "estimator": {"estimator", "errors", "units"},
    "client": {"client", "answers", "calibration", "estimator", "errors", "units"},
    "cli.application": {"cli", "errors"},
}
"""Rooms that may be used without a service, and what every command loads, with the rooms that each loads."""


@pytest.mark.parametrize("room", ROOMS_OF)
def test_importing_a_room_loads_no_other(room: str) -> None:
    loaded, _ = _import_in_a_fresh_process(f"service.{room}")
    assert {name.split(".")[1] for name in loaded if name.startswith("service.")} <= ROOMS_OF[room]
    assert not {"fastapi", "numpy", "pydantic", "sqlalchemy"} & loaded


AS_SERVED = """
import sys
sys.path.insert(0, {root!r})
from importlib import import_module
from pkgutil import walk_packages
import service.api
from service.app import create_app
from service.openapi.document import contract_bytes
from service.catalogue import shipped_catalogue
from service.settings import Settings
contract_bytes(create_app(Settings(), shipped_catalogue()))
print(*sys.modules)
for room in ("service.api", "service.evaluation", "service.jobs", "service.store"):
    for found in walk_packages(import_module(room).__path__, room + "."):
        if not found.name.endswith("_process"):
            import_module(found.name)
print(*sys.modules)
"""


@cache
def _loaded_by_the_api() -> tuple[set[str], set[str]]:
    """What the service loads as it starts, and what all of it loads."""
    script = AS_SERVED.format(root=str(ROOT))
    said = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, check=True).stdout
    at_first, of_all = (set(line.split()) for line in said.splitlines())
    return at_first, of_all


def test_the_api_starts_without_what_few_ask_for() -> None:
    at_first, _ = _loaded_by_the_api()
    assert "service.app" in at_first
    assert not {"jwt", "psycopg", "pyarrow", "redis"} & at_first


def test_the_api_imports_neither_torch_nor_ray() -> None:
    _, of_all = _loaded_by_the_api()
    assert "service.features.launch_checks.finished_jobs" in of_all
    assert not {"ray", "torch"} & of_all
