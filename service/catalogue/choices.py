"""Names that each field of a question takes, with meanings and sources; those of no table are in `choices.csv`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, get_args

from service.catalogue.shipped import csv_rows
from service.estimator.other_tools.comparison import TOOLS
from service.estimator.question import ImplementationName
from service.estimator.software.precision import OPTIMIZERS, PRECISIONS, QUANTIZATIONS, SHORT_NAMES
from service.estimator.software.stacks import CROSS_ENTROPIES, IMPLEMENTATIONS, STACKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One name that a field may take."""

    name: str
    """The name, as written in a question."""
    meaning: str
    """What it stands for."""
    source: str
    """Who says so."""


class _Described(Protocol):
    @property
    def meaning(self) -> str: ...
    @property
    def source(self) -> str: ...


def _choices_of(table: Mapping[Any, _Described]) -> list[Choice]:
    return [Choice(name=name, meaning=row.meaning, source=row.source) for name, row in table.items()]


def _short_precisions() -> list[Choice]:
    return [
        Choice(name=short, meaning=f"short for {name}: {PRECISIONS[name].meaning}", source=PRECISIONS[name].source)
        for short, name in SHORT_NAMES.items()
    ]


def _implementation(name: ImplementationName) -> Choice:
    """An implementation with its meanings and sources over the stacks that have it."""
    rows = {stack: table[name] for stack, table in IMPLEMENTATIONS.items() if name in table}
    meaning = "; ".join(f"{stack}: {row.meaning}" for stack, row in rows.items())
    return Choice(name=name, meaning=meaning, source="; ".join(row.source for row in rows.values()))


@cache
def choices() -> dict[str, tuple[Choice, ...]]:
    """Every enumeration of a question, by field; under `method` the other tools that may answer POST /v1/memory."""
    tables = {
        "recipe.precision": [*_choices_of(PRECISIONS), *_short_precisions()],
        "recipe.optimizer": _choices_of(OPTIMIZERS),
        "recipe.stack": _choices_of(STACKS),
        "recipe.stack.implementation": [_implementation(name) for name in get_args(ImplementationName)],
        "recipe.stack.cross_entropy": _choices_of(CROSS_ENTROPIES),
        "recipe.method.quantization": _choices_of(QUANTIZATIONS),
    }
    for row in csv_rows("choices.csv"):
        choice = Choice(name=row["name"], meaning=row["meaning"], source=row["source"])
        tables.setdefault(row["field"], []).append(choice)
    tables["recipe.method.joint"] = tables["recipe.method.targets"]
    tables["method"] = [
        Choice(name=name, meaning=f"{row.tool}: {row.meaning}", source=row.source) for name, row in TOOLS.items()
    ]
    return {field: tuple(rows) for field, rows in tables.items()}
