"""Many numbers in one request: a CSV table, or XML for FILTERXML.

The question comes in its flat form, with the options of a cell but `unit`; `metrics` names the numbers. A field of the
question that is given several values (`tp=1;2;4`) is swept: one row a value, of two fields one row a pair.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import NotFound, Problem, Refused
from service.features.cells.cells import (
    CellOptions,
    Pairs,
    answered,
    read_options,
    reason,
    split_options,
)
from service.features.estimates.metrics import COLUMNS, FITS, Metric, number_named, whole_of
from service.planner.steps import Steps
from service.tabular.cell_text import number_text
from service.tabular.lists import cell_text
from service.tabular.sheets import xml_text
from service.units import dimension_of
from service.validation.flat import ALIASES, flat_fields
from service.validation.flat_values import LIST_MARK
from service.validation.text import one_line

METRICS = "metrics"
"""Parameter that names the numbers of a table."""

MAIN = (FITS, "parameters.total", *COLUMNS)
"""Numbers of a table where the caller names none."""

NAME = re.compile(r"[a-z0-9_.-]+")
"""A name that may be the head of a column and the name of an element."""

MOST_METRICS = 100
MOST_SWEPT = 2
MOST_ROWS = 200
"""Rows of one sweep, each an answer of its own."""

ROOT = "estimate"
"""Element that holds all others."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of an answer as a table tells it."""

    value: str
    """The number; empty where it is not known."""
    low: str
    """Its lower end; empty where it is exact or not known."""
    high: str
    """Its upper end; empty where it is exact or not known."""
    why: str
    """Why it is not known; empty where it is."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A table as it was asked for."""

    metrics: Mapping[str, Metric]
    question: Pairs
    options: CellOptions


def table_csv(parameters: Pairs, catalogue: Catalogue) -> Steps[str]:
    """Numbers of an answer, one row each; or of several answers, one row each, where fields are swept."""
    wanted = _read(parameters)
    swept = _swept(wanted.question)
    if swept:
        return (yield from _sweep(wanted, swept, catalogue))
    found = answered(wanted.question, wanted.options, catalogue)
    whole = whole_of(found)
    rows = []
    for name, metric in wanted.metrics.items():
        figure = _figure(metric, found, whole, wanted.options)
        unit = dimension_of(metric.path).base
        rows.append([name, figure.value, figure.low, figure.high, unit, cell_text(figure.why)])
    yield None
    return _csv(["metric", "value", "low", "high", "unit", "reason"], rows)


def rows_of(parameters: Pairs) -> int:
    """How many answers a table needs."""
    return prod(map(len, _swept(_read(parameters).question).values()))


def estimate_xml(parameters: Pairs, catalogue: Catalogue) -> str:
    """Numbers of an answer as XML without a namespace, an element each; of a prediction the ends are attributes."""
    wanted = _read(parameters)
    found = answered(wanted.question, wanted.options, catalogue)
    whole = whole_of(found)
    elements = [
        _element(name, metric, _figure(metric, found, whole, wanted.options)) for name, metric in wanted.metrics.items()
    ]
    return f'<{ROOT} id="{found.id}" verdict="{found.verdict}">{"".join(elements)}</{ROOT}>'


def error_csv(text: str) -> str:
    """Why there is no table, as a table of one cell."""
    return _csv([cell_text(text)], [])


def error_xml(text: str) -> str:
    """Why there is no answer, as the only element."""
    return f"<{ROOT}><error>{xml_text(text)}</error></{ROOT}>"


def _read(parameters: Pairs) -> _Wanted:
    given, question = split_options([pair for pair in parameters if pair[0] != METRICS])
    if any(name == "unit" for name, _ in given):
        message = "unit is for one number, and a table tells each number in the unit that stands beside it"
        raise Refused(Problem(field="unit", code="not_in_tables", message=message, fix="leave unit out"))
    named = [name for key, text in parameters if key == METRICS for name in text.lower().split(LIST_MARK)]
    if len(named) > MOST_METRICS:
        message = f"{len(named)} numbers are asked for, and one table takes {MOST_METRICS}"
        raise Refused(Problem(field=METRICS, code="too_many", message=message, fix="ask for the others beside it"))
    if not all(map(NAME.fullmatch, named)):
        message = "the name of a number holds a character that no number has in its name"
        raise Refused(Problem(field=METRICS, code="unknown_metric", message=message, fix="separate names with ;"))
    metrics = {name: number_named(METRICS, name) for name in named or MAIN}
    return _Wanted(metrics, question, read_options(given))


def _swept(question: Pairs) -> dict[str, list[str]]:
    """The fields that take one value and are given several, by the names they are given by."""
    given: dict[str, list[str]] = {}
    for name, text in question:
        field = flat_fields().get(ALIASES.get(name, name))
        if field is not None and not field.is_list:
            given.setdefault(name, []).extend(text.split(LIST_MARK))
    swept = {name: texts for name, texts in given.items() if len(texts) > 1}
    count = prod(map(len, swept.values()))
    if len(swept) > MOST_SWEPT:
        message = f"{len(swept)} fields are given several values, and a table has room for {MOST_SWEPT}"
        raise Refused(_too_much(message, "give the other fields one value"))
    if count > MOST_ROWS:
        raise Refused(_too_much(f"the values make {count} rows, and one table takes {MOST_ROWS}", "give fewer values"))
    return swept


def _too_much(message: str, fix: str) -> Problem:
    return Problem(field="", code="too_many_rows", message=message, fix=fix)


def _sweep(wanted: _Wanted, swept: Mapping[str, list[str]], catalogue: Catalogue) -> Steps[str]:
    kept = [pair for pair in wanted.question if pair[0] not in swept]
    rows: list[list[str]] = []
    refusals: list[Refused] = []
    combinations = [*product(*swept.values())]
    yield len(combinations)
    for texts in combinations:
        question = [*kept, *zip(swept, texts, strict=True)]
        try:
            told = _told(wanted, question, catalogue)
        except Refused as refused:
            refusals.append(refused)
            told = ["", *("" for _ in wanted.metrics), cell_text(one_line(reason(refused)))]
        rows.append([*map(cell_text, texts), *told])
        yield None
    if len(refusals) == len(rows):
        raise refusals[0]
    return _csv([*swept, "verdict", *wanted.metrics, "reason"], rows)


def _told(wanted: _Wanted, question: Pairs, catalogue: Catalogue) -> list[str]:
    """The row of one answer behind the swept values."""
    found = answered(question, wanted.options, catalogue)
    whole = whole_of(found)
    figures = [_figure(metric, found, whole, wanted.options) for metric in wanted.metrics.values()]
    unknown = dict.fromkeys(figure.why for figure in figures if figure.why)
    return [found.verdict, *(figure.value for figure in figures), cell_text(one_line("; ".join(unknown)))]


def _figure(metric: Metric, found: Answer, whole: Mapping[str, Any], options: CellOptions) -> Figure:
    try:
        value = metric.found_in(whole)
        if value is None:
            metric.value_in(found)  # says what the number needs
    except (Refused, NotFound) as error:
        return Figure("", "", "", one_line(reason(error)))
    ends = value if isinstance(value, dict) else {"value": value}
    value, low, high = (number_text(ends[end], options.num) if end in ends else "" for end in ("value", "low", "high"))
    return Figure(value, low, high, "")


def _element(name: str, metric: Metric, figure: Figure) -> str:
    """A number as an element; where its name may not begin one, as `6n`, the whole path does."""
    called = name if name[0].isalpha() else ".".join(metric.path)
    said = {"unit": dimension_of(metric.path).base, "low": figure.low, "high": figure.high, "reason": figure.why}
    attributes = "".join(f' {key}="{xml_text(text)}"' for key, text in said.items() if text)
    return f"<{called}{attributes}>{figure.value}</{called}>"


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue()
