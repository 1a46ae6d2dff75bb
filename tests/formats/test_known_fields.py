"""Fields of files without a parser in a package have the names and types of the tool's source."""

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.formats.program import nodes_of
from tests.formats.tools import written

FOLDER = Path(__file__).parent / "fields"


@dataclass(frozen=True)
class Named:
    """A value that stands in a file by its name, such as torch.bfloat16, or by a call of it."""

    name: str
    """Names with dots between them."""


def known(tool: str) -> dict[str, str]:
    """The type of every field of a tool's configuration, by dotted path."""
    found: dict[str, str] = {}
    for row in listed(tool):
        aliases = row.get("aliases", {})
        found |= {f"{row['part']}.{name}".lstrip("."): aliases.get(kind, kind) for name, kind in row["fields"].items()}
    return found


def listed(tool: str) -> list[dict[str, Any]]:
    """The classes of a tool's configuration: part, name, source, date, fields, and what names of types mean."""
    rows: list[dict[str, Any]] = tomllib.loads((FOLDER / f"{tool}.toml").read_text(encoding="utf-8"))["class"]
    return rows


def declared_fields(source: str, name: str) -> dict[str, str]:
    """The annotated fields of a class in Python source, private ones left out, each with its type as it is written."""
    body: list[ast.stmt] = ast.parse(source).body
    for part in name.split("."):
        (found,) = [node for node in body if isinstance(node, ast.ClassDef) and node.name == part]
        body = found.body
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_")
    }


def value_of(expression: ast.expr) -> Any:
    """What an expression of a file stands for, without running it."""
    if isinstance(expression, ast.Call):
        return Named(ast.unparse(expression.func))
    if isinstance(expression, ast.Attribute):
        return Named(ast.unparse(expression))
    return eval_list(expression) if isinstance(expression, ast.BinOp) else ast.literal_eval(expression)


def eval_list(expression: ast.expr) -> list[Any]:
    """A sum of products of lists, as a pattern of layers is written."""
    if isinstance(expression, ast.BinOp):
        left = eval_list(expression.left)
        if isinstance(expression.op, ast.Mult):
            return left * int(ast.literal_eval(expression.right))
        return left + eval_list(expression.right)
    return list(ast.literal_eval(expression))


def fits(kind: str, value: Any) -> bool:
    """Whether a value has a type of Python.

    >>> fits("Optional[Literal['full', 'selective']]", "block"), fits("int | None", True), fits("float", 1)
    (False, False, True)
    >>> fits("Optional[Tuple[int, int]]", (511, 0)), fits("torch.dtype", Named("torch.bfloat16"))
    (True, True)
    """
    return _fits(ast.parse(kind, mode="eval").body, value)


_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (int, float), "str": (str,), "dict": (dict,), "Dict": (dict,), "list": (list,),
    "NoneType": (type(None),),
}  # fmt: skip
_NAMES = {
    "dtype": "torch.", "Callable": "torch.nn.functional.", "MixedPrecisionConfig": "get_mixed_precision_config",
}  # fmt: skip
"""How values begin whose type is of another name than they are."""


def _fits(kind: ast.expr, value: Any) -> bool:
    if isinstance(kind, ast.BinOp):
        return _fits(kind.left, value) or _fits(kind.right, value)
    if isinstance(kind, ast.Constant):
        return value is None if kind.value is None else fits(str(kind.value), value)
    if isinstance(kind, ast.Subscript):
        inner = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        return _fits_some(ast.unparse(kind.value).rpartition(".")[2], inner, value)
    return _is_of(ast.unparse(kind), value)


def _is_of(name: str, value: Any) -> bool:
    last = name.rpartition(".")[2]
    if isinstance(value, Named):
        return value.name == name or value.name.startswith(_NAMES.get(last, f"{name}."))
    return isinstance(value, bool) if last == "bool" else _is_plain(last, value)


def _is_plain(name: str, value: Any) -> bool:
    return isinstance(value, _PLAIN.get(name, ())) and not isinstance(value, bool)


def _fits_some(outer: str, inner: list[ast.expr], value: Any) -> bool:
    if outer == "Literal":
        return value in [ast.literal_eval(choice) for choice in inner]
    if outer in ("Optional", "Union", "Annotated"):
        choices = inner[:1] if outer == "Annotated" else inner
        return any(_fits(choice, value) for choice in choices) or (outer == "Optional" and value is None)
    if outer == "Callable":
        return _is_of(outer, value)
    if outer in ("Dict", "dict"):
        return isinstance(value, dict)
    return isinstance(value, list | tuple) and _fits_each(inner, value)


def _fits_each(inner: list[ast.expr], values: Sequence[Any]) -> bool:
    """Whether items have the types of a tuple, or all of them that of a list."""
    is_tuple = len(inner) > 1 and ast.unparse(inner[-1]) != "..."
    kinds = inner if is_tuple else inner[:1] * len(values)
    return len(kinds) == len(values) and all(_fits(kind, item) for kind, item in zip(kinds, values, strict=True))


def fits_go(kind: str, value: Any) -> bool:
    """Whether a value has a type of Go; one of a name that is not plain is an object.

    >>> fits_go("*int32", 2), fits_go("map[string][]string", {"env": []}), fits_go("string", 1)
    (True, True, False)
    """
    kind = kind.removeprefix("*")
    if kind.startswith("[]"):
        return isinstance(value, list) and all(fits_go(kind[2:], item) for item in value)
    if mapped := re.fullmatch(r"map\[string\](.*)", kind):
        return isinstance(value, dict) and all(fits_go(mapped[1], item) for item in value.values())
    plain: dict[str, type] = {"string": str, "int32": int}
    return isinstance(value, plain.get(kind, dict)) and not isinstance(value, bool)


CONFIGURED = {"torchtitan-main": ("torchtitan", "main"), "megatron-bridge": ("megatron-bridge", None)}
"""Target and version of each file that fills in a configuration."""


def assigned(content: str) -> Iterator[tuple[str, Any]]:
    """What a function of a file sets, by its path below the configuration."""
    (function,) = [node for node in ast.parse(content).body if isinstance(node, ast.FunctionDef)]
    for node in function.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            yield ast.unparse(node.targets[0]).partition(".")[2], value_of(node.value)


@pytest.mark.parametrize("tool", CONFIGURED)
def test_a_configuration_knows_every_field_and_its_type(tool: str) -> None:
    fields, (name, version) = known(tool), CONFIGURED[tool]
    for _, file in written(name, version):
        found = dict(assigned(file.content))
        assert found
        assert {path: value for path, value in found.items() if path not in fields} == {}
        assert {path: (fields[path], value) for path, value in found.items() if not fits(fields[path], value)} == {}


def test_volcano_knows_every_field_and_its_type() -> None:
    fields = known("volcano")
    for question, file in written("volcano"):
        spec = yaml.safe_load(file.content)["spec"]
        found = [("spec", spec), *(("task", task) for task in spec["tasks"])]
        wrong = [
            (part, name, value)
            for part, row in found
            for name, value in row.items()
            if f"{part}.{name}" not in fields or not fits_go(fields[f"{part}.{name}"], value)
        ]
        assert wrong == []
        assert spec["minAvailable"] == nodes_of(question).count


def test_ray_knows_every_field_and_its_type() -> None:
    fields = known("ray-train")
    for question, file in written("ray-train"):
        calls = [node for node in ast.walk(ast.parse(file.content)) if isinstance(node, ast.Call)]
        (scaling,) = [one for one in calls if isinstance(one.func, ast.Name) and one.func.id == "ScalingConfig"]
        said = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in scaling.keywords}
        assert [(name, value) for name, value in said.items() if not fits(fields[name], value)] == []
        nodes = nodes_of(question)
        assert (said["num_workers"], said["resources_per_worker"]) == (nodes.count, {"GPU": nodes.gpus_each})


def test_every_list_names_its_commit_and_date() -> None:
    lists = [path.stem for path in FOLDER.glob("*.toml")]
    assert {*lists} == {*CONFIGURED, "volcano", "ray-train"}
    rows = [row for tool in lists for row in listed(tool)]
    assert [row for row in rows if "@" not in row["source"] or not row["date"]] == []
