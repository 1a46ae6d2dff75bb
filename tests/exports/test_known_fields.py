"""Has every field in the file of a tool that no package brings a parser for the name and type of the tool's source?"""

import ast
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from service.exports.program import nodes_of
from tests.exports.declared import FOLDER, fits, fits_go, known, listed, value_of
from tests.exports.tools import written

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
