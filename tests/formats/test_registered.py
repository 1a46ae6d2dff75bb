"""The models and configurations of torchtitan's registries: the catalogue's, and those of the installed source."""

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.formats.frameworks.torchtitan import REGISTERED, RETIRED, RegisteredModel
from service.formats.frameworks.torchtitan_module import CONFIGURATIONS
from tests.formats.tools import tools


@pytest.mark.parametrize("row", [*REGISTERED, *RETIRED], ids=lambda row: f"{row.module} {row.flavor}")
def test_a_registered_model_has_the_sizes_of_its_row_in_the_catalogue(row: RegisteredModel) -> None:
    model = shipped_catalogue().find_model(row.slug).row.model
    assert model is not None
    heads = (model.num_attention_heads, model.key_value_heads)
    assert (model.num_hidden_layers, model.hidden_size, *heads) == row.sizes[:4]
    assert (model.vocab_size, model.num_experts) == row.sizes[5:]
    assert model.intermediate_size in (None, row.sizes[4])


def _calls(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Literal arguments of the calls in each function, and under each key, of a source."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name, _literals(node)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value), _literals(value)


def _literals(node: ast.AST) -> dict[str, Any]:
    pairs = [one for call in ast.walk(node) if isinstance(call, ast.Call) for one in call.keywords]
    return {one.arg: one.value.value for one in pairs if one.arg and isinstance(one.value, ast.Constant)}


def test_registered_models_have_the_sizes_of_torchtitan_0_2() -> None:
    for module in {row.module for row in REGISTERED}:
        source = tools() / "torchtitan-0.2.2" / "torchtitan" / "models" / module / "__init__.py"
        found = dict(_calls(source.read_text(encoding="utf-8")))
        for row in REGISTERED:
            if row.module == module:
                names = ("n_layers", "dim", "n_heads", "vocab_size", "num_experts")
                expected = dict(zip(names, (*row.sizes[:3], *row.sizes[5:]), strict=True))
                stated = {name: found[row.flavor][name] for name in names if name in found[row.flavor]}
                assert stated == {name: expected[name] for name in stated}


def test_configurations_have_the_batches_and_degrees_of_torchtitan_0_3() -> None:
    for name, row in CONFIGURATIONS.items():
        module, config = name.split()
        source = tools() / "torchtitan-0.3.0" / "torchtitan" / "models" / module / "config_registry.py"
        found = dict(_calls(source.read_text(encoding="utf-8")))[config]
        given = {key.rpartition(".")[2]: value for key, value in row.items() if "." in key}
        both = found.keys() & given.keys() - {"enable", "steps"}  # of other parts too
        assert {key: found[key] for key in both} == {key: given[key] for key in both}
