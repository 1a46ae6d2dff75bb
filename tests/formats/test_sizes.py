"""Models that tools name have the sizes in the catalogue that the tools' sources give them."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.formats.frameworks import torchtune

TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "sizes.toml").read_text(encoding="utf-8"))

NAMED: dict[str, tuple[Mapping[str, str], tuple[str, ...]]] = {"torchtune": (torchtune.MODELS, ("_base", "_instruct"))}
"""Rows of the catalogue by each tool's names of models, and ends of names that change no size."""

ROWS = [pytest.param(tool, name, id=f"{tool}-{name}") for tool, part in TABLE.items() for name in part["sizes"]]


@pytest.mark.parametrize(("tool", "name"), ROWS)
def test_a_named_model_has_the_sizes_of_the_tool(tool: str, name: str) -> None:
    models, ends = NAMED[tool]
    plain = name
    for end in ends:
        plain = plain.removesuffix(end)
    model = shipped_catalogue().find_model(models[plain]).row.model
    assert model is not None
    vocabulary, layers, heads, groups, width, mlp, head = TABLE[tool]["sizes"][name]
    assert (model.vocab_size, model.num_hidden_layers, model.num_attention_heads) == (vocabulary, layers, heads)
    assert (model.key_value_heads, model.hidden_size, model.intermediate_size) == (groups, width, mlp)
    assert model.head_width == (head or width // heads)


def test_every_name_of_a_tool_has_its_sizes() -> None:
    for tool, (models, ends) in NAMED.items():
        known = {*TABLE[tool]["sizes"]}
        assert {name for name in models if not known & {name, *(f"{name}{end}" for end in ends)}} == set()
