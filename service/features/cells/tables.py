"""Many numbers in one request: a CSV table, or XML for FILTERXML."""

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
    cell_answer,
    is_sentence,
    read_options,
    reason,
    split_options,
)
from service.features.estimates.metrics import COLUMNS, FITS, Metric, number_named, whole_of
from service.features.estimates.planned import planned
from service.planner.steps import Steps
from service.tabular.csv_text import number_text
from service.tabular.lists import cell_text
from service.tabular.sheets import xml_text
from service.units import dimension_of
from service.validation.flat import ALIASES, LIST_MARK, flat_fields
from service.validation.json_text import single_line

METRICS = "metrics"

MAIN = (FITS, "parameters.total", *COLUMNS)
"""Default numbers of a table."""

NAME = re.compile(r"[a-z0-9_.-]+")

MOST_METRICS = 100
MOST_SWEPT = 2
MOST_ROWS = 200

ROOT = "estimate"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a table as text: `value` is empty if unknown, `low` and `high` also if exact."""

    value: str
    low: str
    high: str
    unit: str
    reason: str
    """Why it is unknown; else empty."""


@dataclass(frozen=True, slots=True)
class _TableRequest:
    metrics: Mapping[str, Metric]
    question: Pairs
    options: CellOptions


def table_csv(parameters: Pairs, catalogue: Catalogue) -> Steps[str]:
    """Numbers of an answer, one row for each number; of a sweep, one row for each answer."""
    request = _read(parameters)
    swept = _swept(request.question)
    if swept:
        return (yield from _sweep(request, swept, catalogue))
    _, figures = _figures(request, request.question, catalogue)
    rows = [[name, one.value, one.low, one.high, one.unit, cell_text(one.reason)] for name, one in figures.items()]
    yield None
    return _csv(["metric", "value", "low", "high", "unit", "reason"], rows)


def rows_of(parameters: Pairs) -> int:
    """Number of answers that a table needs."""
    return prod(map(len, _swept(_read(parameters).question).values()))


def estimate_xml(parameters: Pairs, catalogue: Catalogue) -> str:
    """Numbers of an answer as XML elements without a namespace; interval ends are attributes."""
    request = _read(parameters)
    answer, figures = _figures(request, request.question, catalogue)
    elements = [_element(name, request.metrics[name], figure) for name, figure in figures.items()]
    return f'<{ROOT} id="{answer.id}" verdict="{answer.verdict}">{"".join(elements)}</{ROOT}>'


def error_csv(text: str) -> str:
    """An error as a table of one cell."""
    return _csv([cell_text(text)], [])


def error_xml(text: str) -> str:
    """An error as the only element of the root."""
    return f"<{ROOT}><error>{xml_text(text)}</error></{ROOT}>"


def _read(parameters: Pairs) -> _TableRequest:
    given, question = split_options([pair for pair in parameters if pair[0] != METRICS])
    if any(name == "unit" for name, _ in given):
        message = "unit applies to a single number; a table gives each number in the unit that it names"
        raise Refused(Problem(field="unit", code="not_in_tables", message=message, fix="leave unit out"))
    named = [name for key, text in parameters if key == METRICS for name in text.lower().split(LIST_MARK)]
    if len(named) > MOST_METRICS:
        message = f"{len(named)} numbers are requested, and one table takes {MOST_METRICS}"
        raise Refused(Problem(field=METRICS, code="too_many", message=message, fix="request a second table"))
    if not all(map(NAME.fullmatch, named)):
        message = "the name of a number contains an invalid character"
        raise Refused(Problem(field=METRICS, code="unknown_metric", message=message, fix="separate names with ;"))
    metrics = {name: number_named(METRICS, name) for name in named or MAIN}
    return _TableRequest(metrics, question, read_options(given))


def _swept(question: Pairs) -> dict[str, list[str]]:
    """Values of each scalar field that has several in the request, by the name in the request."""
    given: dict[str, list[str]] = {}
    for name, text in question:
        field = flat_fields().get(ALIASES.get(name, name))
        if field is not None and not field.is_list:
            given.setdefault(name, []).extend(text.split(LIST_MARK))
    swept = {name: texts for name, texts in given.items() if len(texts) > 1}
    count = prod(map(len, swept.values()))
    if len(swept) > MOST_SWEPT:
        message = f"{len(swept)} fields have several values, and a table takes at most {MOST_SWEPT}"
        raise Refused(_too_much(message, "give the other fields one value"))
    if count > MOST_ROWS:
        raise Refused(_too_much(f"the values make {count} rows, and one table takes {MOST_ROWS}", "give fewer values"))
    return swept


def _too_much(message: str, fix: str) -> Problem:
    return Problem(field="", code="too_many_rows", message=message, fix=fix)


def _sweep(request: _TableRequest, swept: Mapping[str, list[str]], catalogue: Catalogue) -> Steps[str]:
    fixed = [pair for pair in request.question if pair[0] not in swept]
    rows: list[list[str]] = []
    refusals: list[Refused] = []
    combinations = [*product(*swept.values())]
    yield len(combinations)
    for texts in combinations:
        question = [*fixed, *zip(swept, texts, strict=True)]
        try:
            answer, figures = _figures(request, question, catalogue)
            unknown = "; ".join(dict.fromkeys(one.reason for one in figures.values() if one.reason))
            cells = [answer.verdict, *(one.value for one in figures.values()), cell_text(single_line(unknown))]
        except Refused as refused:
            refusals.append(refused)
            cells = ["", *("" for _ in request.metrics), cell_text(single_line(reason(refused)))]
        rows.append([*map(cell_text, texts), *cells])
        yield None
    if len(refusals) == len(rows):
        raise refusals[0]
    return _csv([*swept, "verdict", *request.metrics, "reason"], rows)


def _figures(request: _TableRequest, question: Pairs, catalogue: Catalogue) -> tuple[Answer, dict[str, Figure]]:
    planner = planned if is_sentence(question) else None
    answer = cell_answer(question, request.options, catalogue, planner)
    values = whole_of(answer)
    return answer, {name: _figure(metric, answer, values, request.options) for name, metric in request.metrics.items()}


def _figure(metric: Metric, answer: Answer, values: Mapping[str, Any], options: CellOptions) -> Figure:
    unit = dimension_of(metric.path).base
    try:
        value = metric.read(values)
        if value is None:
            metric.value_in(answer)  # raises the reason
    except (Refused, NotFound) as error:
        return Figure("", "", "", unit, single_line(reason(error)))
    ends = value if isinstance(value, dict) else {"value": value}
    value, low, high = (number_text(ends[end], options.num) if end in ends else "" for end in ("value", "low", "high"))
    return Figure(value, low, high, unit, "")


def _element(name: str, metric: Metric, figure: Figure) -> str:
    """A number as an element, named by its whole path where its name cannot begin an element, as `6n`."""
    tag = name if name[0].isalpha() else ".".join(metric.path)
    texts = {"unit": figure.unit, "low": figure.low, "high": figure.high, "reason": figure.reason}
    attributes = "".join(f' {key}="{xml_text(text)}"' for key, text in texts.items() if text)
    return f"<{tag}{attributes}>{figure.value}</{tag}>"


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue()
