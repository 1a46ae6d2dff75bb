"""Comparisons as JSON, CSV or a workbook."""

from collections.abc import Mapping
from typing import Any, Literal

from service.answers.rows import ComparisonAnswer
from service.catalogue import Catalogue
from service.errors import Refused
from service.features.compare.compare import Comparison, cells_of, columns_of, compare_steps
from service.features.compare.schemas import Parameters, body_of_flat_comparison, flat_problem
from service.planner.steps import Steps
from service.tabular.lists import csv_text, typed_cell
from service.tabular.sheets import workbook
from service.validation.serialization import to_bytes

TableForm = Literal["json", "csv", "xlsx"]
"""Format of a table."""


def comparison_bytes(body: Mapping[str, Any], catalogue: Catalogue, form: TableForm) -> Steps[bytes]:
    """Compare one job on many clusters at many prices and serialize the table."""
    compared = yield from compare_steps(body, catalogue)
    if form == "json":
        return to_bytes(whole_comparison(compared))
    return comparison_csv(compared).encode() if form == "csv" else comparison_workbook(compared)


def flat_comparison_bytes(parameters: Parameters, catalogue: Catalogue, form: TableForm) -> Steps[bytes]:
    """The same for a flat question."""
    try:
        return (yield from comparison_bytes(body_of_flat_comparison(parameters), catalogue, form))
    except Refused as refused:
        raise Refused(*map(flat_problem, refused.problems)) from None


def whole_comparison(compared: Comparison) -> ComparisonAnswer:
    """A comparison as its JSON answer."""
    return ComparisonAnswer(
        rows=tuple(compared.rows),
        sort_by=compared.sort_by,
        descending=compared.descending,
        versions=compared.versions,
    )


def comparison_csv(compared: Comparison) -> str:
    """A comparison as CSV without cells that a spreadsheet runs as formulas."""
    intervals = _intervals(compared)
    return csv_text(columns_of(intervals), (cells_of(row, intervals) for row in compared.rows))


def comparison_workbook(compared: Comparison) -> bytes:
    """A comparison as a workbook of one sheet: the same rows as its CSV."""
    intervals = _intervals(compared)
    rows = [[typed_cell(cell) for cell in cells_of(row, intervals)] for row in compared.rows]
    return workbook(columns_of(intervals), rows)


def _intervals(compared: Comparison) -> Mapping[str, bool]:
    return {name: metric.is_interval for name, metric in compared.metrics.items()}
