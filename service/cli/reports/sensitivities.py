"""Terminal report of a sensitivity table."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from service.answers.rows import VariedRow
from service.cli.console import table
from service.features.compare.compare import ANSWERED
from service.features.sensitivity.tables import plain_cell, table_csv, whole_table
from service.features.sensitivity.vary import Variations
from service.units import readable
from service.validation.serialization import to_bytes


def table_report(varied: Variations) -> str:
    """A table as a person reads it in a terminal."""
    names = [name for name in varied.metrics if any(row.numbers.get(name) is not None for row in varied.rows)]
    lines = table([[*varied.fields, "verdict", *names], *(_line(varied, row, names) for row in varied.rows)])
    reasons = [f"row {place}: {row.reason}" for place, row in enumerate(varied.rows) if row.status != ANSWERED]
    return "\n".join([*lines, *(["", *reasons] if reasons else [])])


def format_table(varied: Variations, form: Literal["json", "csv", "report"]) -> str | bytes:
    """A table in one of the forms that a terminal shows."""
    if form == "json":
        return to_bytes(whole_table(varied))
    return table_csv(varied) if form == "csv" else table_report(varied)


def _line(varied: Variations, row: VariedRow, names: Sequence[str]) -> list[str]:
    values = [plain_cell(row.values[name]) for name in varied.fields]
    numbers = [row.numbers.get(name) for name in names]
    return [*map(_text, values), row.verdict or "refused", *map(_text, numbers)]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value["value"]
    if value is None or isinstance(value, str | bool):
        return "" if value is None else str(value)
    return str(value) if isinstance(value, int) else readable(value)
