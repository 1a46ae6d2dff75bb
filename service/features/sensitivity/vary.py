"""Sensitivity: one row for each value of a varied field, and one for the unchanged question."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from service.answers.rows import SensitivityAnswer, VariedRow
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.features.compare.compare import ANSWERED, REFUSED, MetricTable, reason_of, row_problems
from service.features.estimates.answers import answer, versions_of
from service.features.estimates.metrics import Metric, named_metrics, number_cells, number_columns, number_in, whole_of
from service.features.sensitivity.schemas import VARY, changes_of, read_sensitivity
from service.features.solve.schemas import in_question
from service.planner.steps import Steps, outcome
from service.tabular.lists import TableForm
from service.validation.flat import value_at, variable_fields, with_value
from service.validation.questions import read_question
from service.validation.reading import to_wire

FIRST: Final = ("values", "varied", "status", "verdict")

LAST: Final = ("ratios", "reason", "errors", "warnings", "id")

Variations = MetricTable[SensitivityAnswer]
"""The unchanged question, then one row a value, in request order."""


def vary(body: Mapping[str, Any], catalogue: Catalogue) -> Variations:
    """A table of varied fields."""
    return outcome(vary_steps(body, catalogue))


def sensitivity_bytes(body: Mapping[str, Any], catalogue: Catalogue, form: TableForm) -> Steps[bytes]:
    """Vary fields and serialize the table."""
    return (yield from vary_steps(body, catalogue)).to_bytes(form)


def _table(found: SensitivityAnswer, metrics: Mapping[str, Metric]) -> Variations:
    ratios = [f"{name}.ratio" for name in metrics]
    numbers = number_columns(metrics)
    names = [*found.fields, "varied", "status", "verdict", *numbers, *ratios, "reason", "warnings", "id"]
    cells = [
        [
            *(plain_cell(row.values[name]) for name in found.fields),
            ";".join(row.varied) or None,
            row.status,
            row.verdict,
            *number_cells(metrics, row.numbers),
            *(row.ratios[name] for name in metrics),
            row.reason,
            row.warnings,
            row.id,
        ]
        for row in found.rows
    ]
    return MetricTable(found, metrics, names, cells)


def plain_cell(value: Any) -> Any:
    """A value for one cell: lists and objects as JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | Mapping) else value


def vary_steps(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Variations]:
    request = read_sensitivity(body)
    values, question = request.vary, request.question
    metrics = named_metrics("metrics", request.metrics, (*FIRST, *LAST))
    changed = [*changes_of(request)]
    yield 1 + len(changed)
    try:
        parsed = read_question(question, catalogue)
        base = answer(parsed, catalogue, advise=False)
    except Refused as refused:
        raise Refused(*map(in_question, refused.problems)) from None
    resolved = to_wire(base.resolved)
    own = {name: _own_value(question, resolved, name) for name in values}
    baseline = _Base(question, resolved, own, metrics, whole_of(base))
    rows = [_varied_row(baseline, own, (), baseline.whole)]
    calibrations = [base.versions.calibration]
    yield None
    for changes in changed:
        row, calibration = _row(baseline, changes, catalogue)
        rows.append(row)
        calibrations.append(calibration)
        yield None
    versions = versions_of(catalogue, calibrations)
    return _table(SensitivityAnswer(fields=tuple(values), rows=tuple(rows), versions=versions), metrics)


@dataclass(frozen=True, slots=True)
class _Base:
    question: Mapping[str, Any]
    resolved: Mapping[str, Any]
    """The question with every default filled."""
    own: Mapping[str, Any]
    metrics: Mapping[str, Metric]
    whole: Mapping[str, Any]


def _own_value(question: Mapping[str, Any], resolved: Mapping[str, Any], name: str) -> Any:
    path = variable_fields()[name]
    given = value_at(question, path)
    return value_at(resolved, path) if given is None else given


def _row(base: _Base, changes: Mapping[str, Any], catalogue: Catalogue) -> tuple[VariedRow, str | None]:
    """Row of a variant, and the calibration of its answer."""
    body = base.question
    for name, value in changes.items():
        body = with_value(body, variable_fields()[name], value, base.resolved)
    varied = tuple(changes)
    try:
        whole = whole_of(answer(read_question(body, catalogue), catalogue, advise=False))
    except Refused as refused:
        return _varied_row(base, {**base.own, **changes}, varied, problems=refused.problems), None
    own = {name: _own_value(body, whole["resolved"], name) for name in base.own}
    return _varied_row(base, {**own, **changes}, varied, whole), whole["versions"]["calibration"]


def _varied_row(
    base: _Base,
    values: Mapping[str, Any],
    varied: tuple[str, ...],
    whole: Mapping[str, Any] | None = None,
    problems: Sequence[Problem] = (),
) -> VariedRow:
    numbers = {} if whole is None else {name: number_in(metric, whole) for name, metric in base.metrics.items()}
    ratios = {name: _ratio(numbers.get(name), number_in(metric, base.whole)) for name, metric in base.metrics.items()}
    found: Mapping[str, Any] = whole or {}
    placed = [
        replace(one, field=VARY) if any(f"{one.field}.".startswith(f"{name}.") for name in varied) else in_question(one)
        for one in problems
    ]
    return VariedRow(
        values=values,
        varied=varied,
        status=REFUSED if whole is None else ANSWERED,
        verdict=found.get("verdict"),
        numbers=numbers,
        ratios=ratios,
        reason=reason_of(problems),
        errors=row_problems(placed),
        warnings=tuple(found.get("warnings", ())),
        id=found.get("id"),
    )


def _ratio(number: Any, before: Any) -> float | None:
    """Ratio of a number to that of the first row; of intervals the ratio of their values."""
    new, old = (one["value"] if isinstance(one, Mapping) else one for one in (number, before))
    if new is None or old is None or isinstance(new, bool) or isinstance(old, bool) or not old:
        return None
    return float(new / old)
