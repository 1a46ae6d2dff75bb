"""Types of Hugging Face configs, one row a `model_type`.

A row of `architectures.json` states under which keys the type has the fields of a Model (`keys`; a field of `reads`
without a key of its own has its own name), which fields the type's code fixes whatever the config has (`fixed`), which
values can be expressed (`demands`), and which keys of the architecture change nothing in this type (`without_effect`).
`rules` names functions that read the rest of its keys, with their arguments. A row that is a name is another type's
row. Read in the classes of transformers, see `defaults.json`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from service.catalogue.huggingface import layers, mixers
from service.catalogue.huggingface.layers import Builder


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The description of one type of config."""

    reads: tuple[str, ...]
    """Fields of Model that a key holds."""
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys of fields with another name."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Fields of Model that the type's code fixes."""
    builders: tuple[Builder, ...] = ()
    """Functions that read the rest."""
    demands: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Supported values by key; any other is refused."""
    without_effect: tuple[str, ...] = ()
    """Keys of the architecture without effect in this type."""


@cache
def architectures() -> Mapping[str, Architecture]:
    """Every type, by its `model_type`."""
    file = files("service.catalogue.huggingface").joinpath("architectures.json")
    data: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    found: dict[str, Architecture] = {}
    for name, row in data["types"].items():
        found[name] = found[row] if isinstance(row, str) else _architecture(row, data["groups"])
    return found


def _rule(spec: str | list[Any]) -> Any:
    """A rule by its name; a list calls the function of its first name with the rest."""
    if isinstance(spec, str):
        return getattr(mixers, spec, None) or getattr(layers, spec)
    name, *arguments = spec
    return _rule(name)(*(_rule(one) if isinstance(one, list) else one for one in arguments))


def _architecture(row: Mapping[str, Any], groups: Mapping[str, list[str]]) -> Architecture:
    def frozen(part: str) -> dict[str, Any]:
        values = row.get(part, {}).items()
        return {key: tuple(value) if isinstance(value, list) else value for key, value in values}

    return Architecture(
        reads=tuple(field for read in row["reads"] for field in groups.get(read, [read])),
        keys=frozen("keys"),
        fixed=frozen("fixed"),
        builders=tuple(map(_rule, row.get("rules", ()))),
        demands=frozen("demands"),
        without_effect=tuple(row.get("without_effect", ())),
    )
