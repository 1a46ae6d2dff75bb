"""A config.json holds anything at all under any key: the model is read or refused, never a failure."""

import json
from importlib.resources import files
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.question import Model
from service.validation.question_parts import read_model
from tests.amounts import amount
from tests.echoes import unquoted

CANARY = "c4n4ry"

DEFAULTS: dict[str, dict[str, Any]] = json.loads(
    files("service.catalogue.huggingface").joinpath("defaults.json").read_text(encoding="utf-8")
)["defaults"]

HOSTILE: tuple[Any, ...] = (
    0, -1, 1, 3, 1.5, -0.0, 1e308, 2**63, 10**30, True, False, None, "", CANARY, [], [1], [[1]], [None], [CANARY],
    ["full_attention"], {}, {CANARY: 1}, {"type": CANARY},
)  # fmt: skip

BESIDE = ("layer_types", "text_config", "rope_scaling", "quantization_config", "attn_config", "architectures", CANARY)
"""Keys that no type has a default for."""


TYPES_OF = {
    key: [name for name, defaults in DEFAULTS.items() if key in BESIDE or key in defaults]
    for key in {*BESIDE, *(key for defaults in DEFAULTS.values() for key in defaults)}
}
TURNS = amount(4, 1)
"""Of the types that have a key, how many share the values; those of one that fewer have are all tried in each."""


def values_of(model_type: str, key: str) -> tuple[Any, ...]:
    """What is put under a key of a type: all values in any few types that have it, and all in `.ci/proof sweeps`."""
    types = TYPES_OF[key]
    turns = TURNS if len(types) >= TURNS else 1
    return HOSTILE[types.index(model_type) % turns :: turns]


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_any_value_under_any_key_is_read_or_refused(catalogue: Catalogue, model_type: str) -> None:
    config = {**DEFAULTS[model_type], "model_type": model_type}
    for key in [*DEFAULTS[model_type], *BESIDE]:
        for value in values_of(model_type, key):
            try:
                assert isinstance(read_model({"hf_config": {**config, key: value}}, catalogue).spec, Model)
            except Refused as refused:
                for problem in refused.problems:
                    assert problem.field.startswith("model.hf_config")
                    assert problem.message, (key, value)
                    assert problem.fix, (key, value)
                    assert CANARY not in problem.field + unquoted(problem.message) + problem.fix, (key, value)
