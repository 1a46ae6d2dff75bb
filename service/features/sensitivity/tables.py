"""Sensitivity tables as JSON, CSV, a workbook or terminal lines."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from service.answers.rows import SensitivityAnswer, VariedRow
from service.catalogue import Catalogue
from service.features.compare.compare import ANSWERED
from service.features.compare.tables import TableForm
from service.features.sensitivity.vary import Varied, varying
from service.planner.steps import Steps
from service.tabular.lists import cell_text, typed_cell
from service.tabular.workbooks import workbook
from service.units import readable
from service.validation.serialization import to_bytes

ENDS = ("low", "value", "high")


def sensitivity_sent(body: Mapping[str, Any], catalogue: Catalogue, form: TableForm) -> Steps[bytes]:
    """A table of varied fields as it is sent."""
    varied = yield from varying(body, catalogue)
    if form == "json":
        return to_bytes(whole_table(varied))
    return table_csv(varied).encode() if form == "csv" else table_workbook(varied)


def whole_table(varied: Varied) -> SensitivityAnswer:
    """A table as it stands on the wire."""
    return SensitivityAnswer(fields=varied.fields, rows=tuple(varied.rows), versions=varied.versions)


def table_csv(varied: Varied) -> str:
    """A table as CSV, no cell of which a spreadsheet runs as a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_columns(varied))
    writer.writerows([cell_text(cell) for cell in _cells(varied, row)] for row in varied.rows)
    return text.getvalue()


def table_workbook(varied: Varied) -> bytes:
    """A table as a workbook of one sheet: the same rows as its CSV."""
    return workbook(_columns(varied), [[typed_cell(cell) for cell in _cells(varied, row)] for row in varied.rows])


def table_report(varied: Varied) -> str:
    """A table as a person reads it in a terminal."""
    names = [name for name in varied.metrics if any(row.numbers.get(name) is not None for row in varied.rows)]
    table = [[*varied.fields, "verdict", *names], *(_line(varied, row, names) for row in varied.rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    reasons = [f"row {place}: {row.reason}" for place, row in enumerate(varied.rows) if row.status != ANSWERED]
    return "\n".join([*lines, *(["", *reasons] if reasons else [])])


def table_shown(varied: Varied, form: Literal["json", "csv", "report"]) -> str | bytes:
    """A table in one of the forms that a terminal shows."""
    if form == "json":
        return to_bytes(whole_table(varied))
    return table_csv(varied) if form == "csv" else table_report(varied)


def _columns(varied: Varied) -> list[str]:
    numbers = [
        name
        for number, metric in varied.metrics.items()
        for name in ((f"{number}.low", number, f"{number}.high") if metric.is_interval else (number,))
    ]
    ratios = [f"{number}.ratio" for number in varied.metrics]
    return [*varied.fields, "varied", "status", "verdict", *numbers, *ratios, "reason", "warnings", "id"]


def _cells(varied: Varied, row: VariedRow) -> Sequence[Any]:
    numbers: list[Any] = []
    for name, metric in varied.metrics.items():
        number = row.numbers.get(name)
        ends = number if isinstance(number, Mapping) else {}
        numbers += [ends.get(end) for end in ENDS] if metric.is_interval else [number]
    values = [_plain(row.values[name]) for name in varied.fields]
    ratios = [row.ratios[name] for name in varied.metrics]
    varied_here = ";".join(row.varied) or None
    return [*values, varied_here, row.status, row.verdict, *numbers, *ratios, row.reason, row.warnings, row.id]


def _line(varied: Varied, row: VariedRow, names: Sequence[str]) -> list[str]:
    values = [_plain(row.values[name]) for name in varied.fields]
    numbers = [row.numbers.get(name) for name in names]
    return [*map(_text, values), row.verdict or "refused", *map(_text, numbers)]


def _plain(value: Any) -> Any:
    """A value as one cell holds it: lists and objects as their JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | Mapping) else value


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value["value"]
    if value is None or isinstance(value, str | bool):
        return "" if value is None else str(value)
    return str(value) if isinstance(value, int) else readable(value)
