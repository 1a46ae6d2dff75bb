"""The source of the service as the house rules read it: files, syntax trees, public functions."""

import ast
import gc
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "service"
NUMBERS = frozenset({"int", "float", "Amount"})


def python_files(*folders: str) -> list[Path]:
    """Every Python file below the folders, by path."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def each_of(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test of many files, which tells all that are at fault: thousands of tests take longer to list than to run."""

    def decorated(judge: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            faults = [fault for path in paths for fault in _faults(judge, path)]
            assert not faults, "\n".join(faults)

        test.__name__, test.__doc__, test.__module__ = judge.__name__, judge.__doc__, judge.__module__
        return test

    return decorated


def _faults(judge: Callable[[Path], None], path: Path) -> list[str]:
    try:
        judge(path)
    except AssertionError as fault:
        return [f"{shown(path)}: {fault}"]
    return []


def shown(path: Path) -> str:
    """A path as a person names it."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file, which stays: nobody looks for garbage in it."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of the syntax tree of a file."""
    return tuple(ast.walk(tree_of(path)))


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a file, nested ones included."""
    return [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method below a node, nested ones included."""
    for below in ast.walk(node):
        if isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef):
            yield below


def public_functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a module that others may call."""
    return [
        node
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]


def public_classes(path: Path) -> list[ast.ClassDef]:
    """Classes of a module that others may use."""
    return [node for node in tree_of(path).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def fields_of(kind: ast.ClassDef) -> dict[str, ast.expr]:
    """Annotated fields of a class, constants of the class left out."""
    return {
        node.target.id: node.annotation
        for node in kind.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and not node.target.id.startswith("_")
        and not ast.unparse(node.annotation).startswith("ClassVar")
    }


def arguments_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr | None]:
    """Arguments of a function with their annotations, in order, self and cls left out."""
    spec = function.args
    return {
        a.arg: a.annotation for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs) if a.arg not in {"self", "cls"}
    }


def type_names(annotation: ast.expr | None) -> set[str]:
    """Type names of an annotation: of the alternatives of a union, of the items of a tuple, of an annotated type."""
    if annotation is None:
        return set()
    if isinstance(annotation, ast.BinOp):
        return type_names(annotation.left) | type_names(annotation.right)
    if isinstance(annotation, ast.Subscript):
        outer = ast.unparse(annotation.value)
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if outer == "Annotated":
            return type_names(inner[0])
        if outer == "tuple":
            return {name for item in inner for name in type_names(item)}
        return {outer}
    return {ast.unparse(annotation)}


def is_number(annotation: ast.expr | None) -> bool:
    """Whether an annotation stands for numbers only, or their absence."""
    names = type_names(annotation) - {"None", "Ellipsis", "..."}
    return bool(names) and names <= NUMBERS
