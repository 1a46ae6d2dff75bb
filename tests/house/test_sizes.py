"""Can every file and every function be read in one go?

At most six arguments and no assert are the linter's rules (PLR0913, S101); an exception to any rule says why.
"""

import ast
import re
from pathlib import Path

from tests.house.source import each_of, functions, python_files, tree_of

LONGEST_FILE = 300
LONGEST_FUNCTION = 40

EXCEPTION = re.compile(r"#\s*(?:noqa|type:\s*ignore)")
EXPLAINED_EXCEPTION = re.compile(r"#\s*(?:noqa: [A-Z0-9, ]+|type: ignore\[[\w, -]+\])(?: -|  #) \w+")


@each_of(python_files("service", "migrations", "tests"))
def test_file_is_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_FILE, f"{lines} lines; cut it where its question divides"


@each_of(python_files("service", "migrations"))
def test_functions_are_short(path: Path) -> None:
    lines = {f.name: _lines_of_code(f) for f in functions(tree_of(path))}
    long = {name: count for name, count in lines.items() if count > LONGEST_FUNCTION}
    assert not long, f"{long}; at most {LONGEST_FUNCTION}: name the steps"


@each_of(python_files("service", "migrations"))
def test_exceptions_to_a_linter_say_why(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    bare = [line.strip() for line in lines if EXCEPTION.search(line) and not EXPLAINED_EXCEPTION.search(line)]
    assert not bare, f"write `# noqa: RULE - reason`: {bare}"


def _lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring_lines = (first.end_lineno or first.lineno) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring_lines
