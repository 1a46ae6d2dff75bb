"""Sensitivity: one row for each value of a varied field, beside the question as it was sent.

What is wrong with the request is refused as a whole; what one value makes impossible is a row that says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from service.answers.estimates import Versions
from service.answers.rows import VariedRow
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.features.compare.compare import ANSWERED, REFUSED, mended
from service.features.estimates.answers import answer, versions_of
from service.features.estimates.metrics import Metric, named_metrics, number_in, whole_of
from service.features.sensitivity.requests import VARY, changes_of, read_varied
from service.features.solve.requests import in_question
from service.planner.steps import Steps, outcome
from service.validation.fields import value_at, variable_fields, with_value
from service.validation.questions import read_question
from service.validation.serialization import to_wire
from service.validation.text import one_line

FIRST: Final = ("values", "varied", "status", "verdict")
"""What stands before the numbers of a row."""

LAST: Final = ("ratios", "reason", "errors", "warnings", "id")
"""What stands behind them."""


@dataclass(frozen=True, slots=True)
class Varied:
    """A question and its variations."""

    fields: tuple[str, ...]
    """The varied fields."""
    metrics: Mapping[str, Metric]
    """The numbers of each row, by the names that they have there."""
    rows: Sequence[VariedRow]
    """The question as it was asked, then one row a value, in the order in which they were given."""
    versions: Versions
    """What the answers rest on."""


def vary(body: Mapping[str, Any], catalogue: Catalogue) -> Varied:
    """A table of varied fields."""
    return outcome(varying(body, catalogue))


def varying(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Varied]:
    """The same, answer by answer."""
    wanted = read_varied(body)
    values, question = wanted.values, wanted.question
    metrics = named_metrics("metrics", wanted.tabling.metrics, (*FIRST, *LAST))
    changed = [*changes_of(wanted)]
    yield 1 + len(changed)
    try:
        asked = read_question(question, catalogue)
        base = answer(asked, catalogue, advise=False)
    except Refused as refused:
        raise Refused(*map(in_question, refused.problems)) from None
    resolved = to_wire(base.resolved)
    own = {name: _own_value(question, resolved, name) for name in values}
    kept = _Base(question, resolved, own, metrics, whole_of(base))
    rows = [_answered(kept, own, (), kept.whole)]
    calibrations = [base.versions.calibration]
    yield None
    for changes in changed:
        row, calibration = _row(kept, changes, catalogue)
        rows.append(row)
        calibrations.append(calibration)
        yield None
    return Varied(tuple(values), metrics, tuple(rows), versions_of(catalogue, calibrations))


@dataclass(frozen=True, slots=True)
class _Base:
    """The question as it was asked, and what every row is made from."""

    question: Mapping[str, Any]
    resolved: Mapping[str, Any]
    """The same with every default filled."""
    own: Mapping[str, Any]
    """The varied fields, as they are in it."""
    metrics: Mapping[str, Metric]
    whole: Mapping[str, Any]
    """Its answer."""


def _own_value(question: Mapping[str, Any], resolved: Mapping[str, Any], name: str) -> Any:
    """A field's value in the question: as it was asked, or else as it was filled."""
    path = variable_fields()[name]
    asked = value_at(question, path)
    return value_at(resolved, path) if asked is None else asked


def _row(base: _Base, changes: Mapping[str, Any], catalogue: Catalogue) -> tuple[VariedRow, str | None]:
    """The row of a variant, and the calibration that it rests on."""
    body = base.question
    for name, value in changes.items():
        body = with_value(body, variable_fields()[name], value, base.resolved)
    varied = tuple(changes)
    try:
        found = whole_of(answer(read_question(body, catalogue), catalogue, advise=False))
    except Refused as refused:
        return _refused({**base.own, **changes}, varied, refused.problems, base.metrics), None
    own = {name: _own_value(body, found["resolved"], name) for name in base.own}
    return _answered(base, {**own, **changes}, varied, found), found["versions"]["calibration"]


def _answered(base: _Base, values: Mapping[str, Any], varied: tuple[str, ...], whole: Mapping[str, Any]) -> VariedRow:
    numbers = {name: number_in(metric, whole) for name, metric in base.metrics.items()}
    before = {name: number_in(metric, base.whole) for name, metric in base.metrics.items()}
    return VariedRow(
        values=values,
        varied=varied,
        status=ANSWERED,
        verdict=whole["verdict"],
        numbers=numbers,
        ratios={name: _ratio(number, before[name]) for name, number in numbers.items()},
        reason=None,
        errors=(),
        warnings=tuple(whole["warnings"]),
        id=whole["id"],
    )


def _refused(
    values: Mapping[str, Any], varied: tuple[str, ...], problems: Sequence[Problem], metrics: Mapping[str, Metric]
) -> VariedRow:
    return VariedRow(
        values=values,
        varied=varied,
        status=REFUSED,
        verdict=None,
        ratios=dict.fromkeys(metrics),
        reason=one_line("; ".join(f"{problem.message}; {problem.fix}" for problem in problems)),
        errors=tuple(mended(_placed(problem, varied)) for problem in problems[:MOST_PROBLEMS]),
        warnings=(),
        id=None,
    )


def _placed(problem: Problem, varied: Sequence[str]) -> Problem:
    """A problem at the values that brought it, where it is about a varied field itself."""
    is_own = any(f"{problem.field}.".startswith(f"{name}.") for name in varied)
    return replace(problem, field=VARY) if is_own else in_question(problem)


def _ratio(number: Any, before: Any) -> float | None:
    """A number over that of the first row, of predictions their values."""
    new, old = (one["value"] if isinstance(one, Mapping) else one for one in (number, before))
    if new is None or old is None or isinstance(new, bool) or isinstance(old, bool) or not old:
        return None
    return float(new / old)
