"""Settings that published tables leave out, from the public recipe or test that each row ran."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from service.calibration.tables import FormName, MeasuredRow
from service.evaluation.frameworks import Draft, Flags, put_layers, table_of

TABLE = "recipes.toml"

UNSTATED = ("", "not told", "unknown", "see recipe")
"""Recompute cells that state nothing."""

PARTS = ("model", "recipe", "layout", "stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecipe:
    """Settings of the runs that its conditions match."""

    form: FormName = "memory"
    """Kind of table whose rows it describes."""
    where: Mapping[str, str]
    """Regular expressions by column: each is found in the row's cell."""
    cells: Mapping[str, str] = field(default_factory=dict)
    """Cells of the row, where they are empty."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of Megatron-LM that give the layers."""
    model: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    stack: Mapping[str, Any] = field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()
    """What the recipe sets and no field expresses."""
    source: str
    """Repository, path and commit."""

    def holds(self, row: MeasuredRow) -> bool:
        """Whether a row ran it."""
        return row.form == self.form and all(
            re.search(pattern, row.text(column)) for column, pattern in self.where.items()
        )


@cache
def run_recipes() -> tuple[RunRecipe, ...]:
    """Every recipe; a row takes the settings of all that match it, later ones over earlier ones."""
    rows = table_of(TABLE)["run"]
    return tuple(RunRecipe(**{**row, "unmodelled": tuple(row.get("unmodelled", ()))}) for row in rows)


def completed(row: MeasuredRow) -> MeasuredRow:
    """A row with the cells that its recipe states, which are missing no more.

    >>> row = completed(MeasuredRow(1, {"source_key": "mbridge_skills", "model": "nemotron-3-nano", "pp": "2"}))
    >>> row.count("layers"), row.count("pp")
    (52, 2)
    """
    stated = {column: cell for run in run_recipes() if run.holds(row) for column, cell in run.cells.items()}
    if not stated:
        return row
    known = _without(row.cells, "recompute") if row.text("recompute") in UNSTATED else row.cells
    cells = {**stated, **known}
    missing = " ".join(column for column in row.text("config_missing").split() if column not in stated)
    return replace(row, cells={**cells, "config_missing": missing} if missing else _without(cells, "config_missing"))


def _without(cells: Mapping[str, str], column: str) -> dict[str, str]:
    return {name: cell for name, cell in cells.items() if name != column}


def options_of_recipe(row: MeasuredRow) -> Flags:
    """Options that give the layers of a row's model."""
    return {name: value for run in run_recipes() if run.holds(row) for name, value in run.options.items()}


def put_run_recipe(row: MeasuredRow, draft: Draft) -> None:
    """Set the fields that a row's recipe states, over those of its framework."""
    put_layers(options_of_recipe(row), draft)
    for run in run_recipes():
        if run.holds(row):
            for part in PARTS:
                getattr(draft, part).update(getattr(run, part))
            draft.unmodelled.extend(f"recipe: {detail}" for detail in run.unmodelled)
