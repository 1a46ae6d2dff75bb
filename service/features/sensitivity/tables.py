"""Sensitivity tables as JSON, CSV or a workbook."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from service.answers.rows import SensitivityAnswer, VariedRow
from service.catalogue import Catalogue
from service.features.compare.tables import TableForm
from service.features.sensitivity.vary import Variations, vary_steps
from service.planner.steps import Steps
from service.tabular.lists import csv_text, typed_cell
from service.tabular.sheets import workbook
from service.validation.serialization import to_bytes

ENDS = ("low", "value", "high")


def sensitivity_bytes(body: Mapping[str, Any], catalogue: Catalogue, form: TableForm) -> Steps[bytes]:
    """Vary fields and serialize the table."""
    varied = yield from vary_steps(body, catalogue)
    if form == "json":
        return to_bytes(whole_table(varied))
    return table_csv(varied).encode() if form == "csv" else table_workbook(varied)


def whole_table(varied: Variations) -> SensitivityAnswer:
    """A table as its JSON answer."""
    return SensitivityAnswer(fields=varied.fields, rows=tuple(varied.rows), versions=varied.versions)


def table_csv(varied: Variations) -> str:
    """A table as CSV without cells that a spreadsheet runs as formulas."""
    return csv_text(_columns(varied), (_cells(varied, row) for row in varied.rows))


def table_workbook(varied: Variations) -> bytes:
    """A table as a workbook of one sheet: the same rows as its CSV."""
    return workbook(_columns(varied), [[typed_cell(cell) for cell in _cells(varied, row)] for row in varied.rows])


def _columns(varied: Variations) -> list[str]:
    numbers = [
        name
        for number, metric in varied.metrics.items()
        for name in ((f"{number}.low", number, f"{number}.high") if metric.is_interval else (number,))
    ]
    ratios = [f"{number}.ratio" for number in varied.metrics]
    return [*varied.fields, "varied", "status", "verdict", *numbers, *ratios, "reason", "warnings", "id"]


def _cells(varied: Variations, row: VariedRow) -> Sequence[Any]:
    numbers: list[Any] = []
    for name, metric in varied.metrics.items():
        number = row.numbers.get(name)
        ends = number if isinstance(number, Mapping) else {}
        numbers += [ends.get(end) for end in ENDS] if metric.is_interval else [number]
    values = [plain_cell(row.values[name]) for name in varied.fields]
    ratios = [row.ratios[name] for name in varied.metrics]
    varied_here = ";".join(row.varied) or None
    return [*values, varied_here, row.status, row.verdict, *numbers, *ratios, row.reason, row.warnings, row.id]


def plain_cell(value: Any) -> Any:
    """A value as one cell holds it: lists and objects as their JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | Mapping) else value
