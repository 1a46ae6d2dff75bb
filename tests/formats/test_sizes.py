"""Models that tools name have the sizes that the tools' sources give them."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.estimator.question import Model
from service.features.exports.exports import import_file
from service.formats.frameworks import maxtext, torchtune
from service.formats.model_names import named_model

TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "sizes.toml").read_text(encoding="utf-8"))


def of_torchtune(builder: str) -> Model | None:
    return named_model(torchtune.MODELS[re.sub("_(base|instruct)$", "", builder)]).model


def of_maxtext(name: str) -> Model | None:
    found = import_file("maxtext", f"model_name: {name}\n").model
    return Model(**found) if isinstance(found, dict) else named_model(str(found)).model


MODELS: dict[str, Callable[[str], Model | None]] = {
    "torchtune": of_torchtune,
    "maxtext": of_maxtext,
    "litgpt": lambda name: named_model(name).model,
}
"""The model of a tool's name."""

ROWS = [pytest.param(tool, name, id=f"{tool}-{name}") for tool, part in TABLE.items() for name in part["sizes"]]


@pytest.mark.parametrize(("tool", "name"), ROWS)
def test_a_named_model_has_the_sizes_of_the_tool(tool: str, name: str) -> None:
    model = MODELS[tool](name)
    vocabulary, layers, heads, groups, width, mlp, head = TABLE[tool]["sizes"][name]
    assert model is not None
    assert (model.vocab_size, model.num_hidden_layers, model.num_attention_heads) == (vocabulary, layers, heads)
    assert (model.key_value_heads, model.hidden_size) == (groups, width)
    assert (model.expert_width or model.intermediate_size) == mlp
    assert model.head_width == (head or width // heads)


def test_every_builder_has_its_sizes() -> None:
    named = {re.sub("_(base|instruct)$", "", name) for name in TABLE["torchtune"]["sizes"]}
    assert named == {*torchtune.MODELS}
    assert {*TABLE["maxtext"]["sizes"]} == {*maxtext.MODELS}
