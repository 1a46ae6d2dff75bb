"""One spreadsheet cell: one number of an answer, in the requested unit and notation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from service.answers.estimates import Answer
from service.answers.rows import Cell
from service.catalogue import Catalogue
from service.errors import (
    MOST_PROBLEMS,
    NotFound,
    Problem,
    Refused,
    UnknownMetric,
    UnknownRevision,
    Unreachable,
    quoted,
    refuse,
)
from service.features.estimates.answers import answer
from service.features.estimates.metrics import metric_named
from service.features.estimates.planned import planned
from service.tabular.csv_text import NumberStyle, number_text
from service.units import COUNT, UNITS, Dimension, dimension_of
from service.validation.flat import QUERY, DecimalMark, body_of_flat, rephrased
from service.validation.json_text import single_line
from service.validation.questions import Planner, read_question
from service.validation.sentences.question import read_sentence

OnError = Literal["problem", "text", "blank"]
Pairs = Sequence[tuple[str, str]]
NoNumber = Refused | NotFound | Unreachable

CHOICES: dict[str, tuple[str, ...]] = {
    "num": get_args(NumberStyle),
    "dec": get_args(DecimalMark),
    "on_error": get_args(OnError),
    "unit": tuple(sorted(UNITS)),
}
"""Values of each option of a cell; each metric takes only units of its dimension."""

REFRESH = "r"

REV = "rev"
"""Catalogue of the cell, already looked up by the caller."""

OTHER_FIELDS = (*CHOICES, REFRESH, REV)

SENTENCE = "question"
"""A sentence in place of the fields of a question."""

METRIC = "metric"
"""Metric of the cell to explain; a cell has it in its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOptions:
    """How a sheet wants its number."""

    num: NumberStyle = "e"
    """Notation of numbers that are not whole."""
    dec: DecimalMark = "."
    on_error: OnError = "problem"
    """Form of an error: an HTTP problem, a text in the cell, or an empty cell."""
    unit: str | None = None
    """Unit of the number; the metric's own where absent."""


def split_options(parameters: Pairs) -> tuple[Pairs, Pairs]:
    """Split parameters into options of a cell and the flat question."""
    options = [pair for pair in parameters if pair[0] in CHOICES]
    return options, [pair for pair in parameters if pair[0] not in OTHER_FIELDS]


def read_options(given: Pairs) -> CellOptions:
    """How a sheet wants its number."""
    problems = [_no_such_value(name, value) for name, value in given if name != "unit" and value not in CHOICES[name]]
    names = [name for name, _ in given]
    problems += [_repeated(name) for name in CHOICES if names.count(name) > 1]
    refuse(problems)
    chosen: dict[str, Any] = dict(given)
    return CellOptions(**chosen)


def on_error_of(given: Pairs) -> OnError:
    """Form of an error, even where another option is wrong."""
    given_value = dict(given).get("on_error")
    return next((choice for choice in get_args(OnError) if choice == given_value), "problem")


def cell(
    metric: str, question: Pairs, options: CellOptions, catalogue: Catalogue, planner: Planner | None = None
) -> Cell:
    """Compute one number of an answer for a cell."""
    selected = metric_named(metric)
    dimension = dimension_of(selected.path)
    unit = dimension.base if options.unit is None else options.unit
    if unit not in dimension.scales:
        raise Refused(_other_unit(unit, dimension))
    found = cell_answer(question, options, catalogue, planner)
    value = selected.value_in(found)
    scaled = value if options.unit is None else value / dimension.scales[unit]
    return Cell(number_text(scaled, options.num), unit, found.verdict)


def planned_cell(metric: str, question: Pairs, options: CellOptions, catalogue: Catalogue) -> Cell:
    """Compute one number of an answer whose layout is planned."""
    return cell(metric, question, options, catalogue, planned)


def cell_answer(question: Pairs, options: CellOptions, catalogue: Catalogue, planner: Planner | None = None) -> Answer:
    return answer(read_question(_body_of(question, options, catalogue), catalogue, planner=planner), catalogue)


def is_sentence(question: Pairs) -> bool:
    """Whether a sentence stands in place of the fields of a question."""
    return any(name == SENTENCE for name, _ in question)


def _body_of(question: Pairs, options: CellOptions, catalogue: Catalogue) -> Mapping[str, Any]:
    """The question of a cell: its fields, or the sentence in their place."""
    sentences = [text for name, text in question if name == SENTENCE]
    if not sentences:
        return body_of_flat(question, decimal_mark=options.dec, beside=(SENTENCE, *OTHER_FIELDS))
    if len(question) > 1:
        message = f"{SENTENCE} is a whole question, and other fields stand beside it"
        raise Refused(Problem(SENTENCE, "told_twice", message, "say them in the sentence, or give fields alone"))
    return read_sentence(sentences[0], catalogue, SENTENCE).body


def why(parameters: Pairs, catalogue: Catalogue, planner: Planner | None = None) -> str:
    """Explain the error of a cell with this query; without a metric, of every cell."""
    metrics = [value for name, value in parameters if name == METRIC]
    given, question = split_options([pair for pair in parameters if pair[0] != METRIC])
    try:
        _check_cell(metrics, question, read_options(given), catalogue, planner)
    except (Refused, NotFound) as error:
        return reason(error)
    return "ok"


def reason(error: NoNumber) -> str:
    if isinstance(error, Refused):
        return "\n".join(_line(problem) for problem in error.problems[:MOST_PROBLEMS])
    return _missing(error)


def planned_why(parameters: Pairs, catalogue: Catalogue) -> str:
    """Explain the error of a cell whose layout is planned."""
    return why(parameters, catalogue, planned)


def _check_cell(
    metrics: Sequence[str], question: Pairs, options: CellOptions, catalogue: Catalogue, planner: Planner | None
) -> None:
    """Refuse what the cell of a metric refuses, or without a metric, what every cell does."""
    if len(metrics) > 1:
        raise Refused(_repeated(METRIC))
    if metrics:
        cell(metrics[0], question, options, catalogue, planner)
        return
    if options.unit is not None and options.unit not in UNITS:
        raise Refused(_no_such_value("unit", options.unit))
    cell_answer(question, options, catalogue, planner)


def error_text(error: NoNumber) -> str:
    line = _line(error.problems[0]) if isinstance(error, Refused) else _missing(error)
    return single_line(f"#ERR {line}")


def _missing(error: NotFound | Unreachable) -> str:
    codes = {UnknownMetric: "unknown_metric", UnknownRevision: "unknown_revision", Unreachable: "not_ready"}
    return f"{codes.get(type(error), 'not_found')}: {error}"


def _line(problem: Problem) -> str:
    one = rephrased(problem, QUERY)
    place = f"{one.field}: " if one.field and one.field not in one.message else ""
    return f"{one.code}: {place}{one.message}; {one.fix}"


def _no_such_value(name: str, value: str) -> Problem:
    code = "unknown_unit" if name == "unit" else "not_a_choice"
    message = f"{name} has no value {quoted(value)}"
    return Problem(field=name, code=code, message=message, fix=f"use one of {' '.join(CHOICES[name])}")


def _repeated(name: str) -> Problem:
    return Problem(field=name, code="repeated", message=f"{name} is given more than once", fix="give it once")


def _other_unit(unit: str, dimension: Dimension) -> Problem:
    is_plain = dimension.base == COUNT.base
    message = f"this metric is in {dimension.base}, which no unit of this spelling measures"
    similar = [known for known in dimension.scales if known.casefold() == unit.casefold()]
    hint = f"did you mean {' or '.join(similar)}? capitals count; " if similar else ""
    fix = f"{hint}{'leave unit out, or ' if is_plain else ''}use one of {' '.join(dimension.scales)}"
    message = "this metric is a plain number" if is_plain else message
    return Problem(field="unit", code="unknown_unit", message=message, fix=fix)
