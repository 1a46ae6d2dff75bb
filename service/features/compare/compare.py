"""Comparison of one job on many clusters at many prices, as sorted rows.

A wrong request is refused as a whole. A cluster or price that is refused is a row with the reason, and so is a job
that does not fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from service.answers.estimates import Answer, Versions
from service.answers.rows import ComparedRow, RowProblem
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.features.compare.schemas import (
    CLUSTERS,
    MOST_ROWS,
    Terms,
    Variant,
    matching_prices,
    read_comparison,
    terms_given,
    terms_of,
)
from service.features.estimates.answers import answer, versions_of
from service.features.estimates.metrics import (
    COLUMNS,
    Metric,
    fits,
    metric_named,
    named_metrics,
    number_in,
    number_named,
    whole_of,
)
from service.planner.steps import Steps, outcome
from service.validation.clusters import with_region
from service.validation.prices import read_price
from service.validation.questions import ParsedQuestion
from service.validation.reading import Parsed
from service.validation.specs import field_names
from service.validation.text import single_line

ANSWERED: Final = 200
REFUSED: Final = 422
"""Status of a row, as in POST /v1/estimates."""


FIRST = (
    "cluster", "gpu", "gpus", "usd_per_gpu_hour", "provider", "region", "price_model", "instance_type", "rate_card",
    "price_as_of", "status", "verdict",
)  # fmt: skip
"""Columns before the numbers."""

LAST = ("reason", "errors", "warnings", "assumptions", "id")
"""Columns after the numbers."""

IN_WORDS = "errors"
"""Column that tables leave out, because `reason` has the same text."""


def row_problem(problem: Problem) -> RowProblem:
    """A problem in a row."""
    pointer = "".join(f"/{step}" for step in problem.field.split(".") if step)
    return RowProblem(pointer=pointer, code=problem.code, message=problem.message, fix=problem.fix)


def cells_of(row: ComparedRow, intervals: Mapping[str, bool]) -> Sequence[Any]:
    """A row as the cells of a table."""
    numbers: list[Any] = []
    for name, is_interval in intervals.items():
        number = row.numbers.get(name)
        ends = number if isinstance(number, Mapping) else {}
        numbers += [ends.get(end) for end in ("low", "value", "high")] if is_interval else [number]
    last = [getattr(row, name) for name in LAST if name != IN_WORDS]
    return [*(getattr(row, name) for name in FIRST), *numbers, *last]


def columns_of(intervals: Mapping[str, bool]) -> list[str]:
    """Column names of a table; interval ends are named as in cells.

    >>> columns_of({"days": True, "usable_bytes": False})[len(FIRST):-len(LAST) + 1]
    ['days.low', 'days', 'days.high', 'usable_bytes']
    """
    numbers = [
        name
        for number, is_interval in intervals.items()
        for name in ((f"{number}.low", number, f"{number}.high") if is_interval else (number,))
    ]
    return [*FIRST, *numbers, *(name for name in LAST if name != IN_WORDS)]


SORTED_BY = ("cost_usd", "gpu_hours", "step_seconds")
"""Default numbers to sort by; the first with any value."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same job on many clusters, at many prices."""

    metrics: Mapping[str, Metric]
    """Numbers of each row, by name."""
    sort_by: str
    """Number to sort by."""
    descending: bool
    """Whether the largest comes first."""
    rows: Sequence[ComparedRow]
    """Sorted rows: jobs that fit, then those that do not, then refused ones; ties in request order."""
    versions: Versions
    """Versions of the answers."""


def compare(body: Mapping[str, Any], catalogue: Catalogue) -> Comparison:
    """The same job on many clusters, at many prices."""
    return outcome(compare_steps(body, catalogue))


def compare_steps(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Comparison]:
    """Compare, one answer a step."""
    request = yield from read_comparison(body, catalogue)
    metrics = named_metrics("columns", request.options.columns, (*FIRST, *LAST))
    given = request.options.sort_by
    asked_order = number_named("sort_by", given or SORTED_BY[-1])
    priced = [(variant, _priced(variant, catalogue)) for variant in request.variants]
    count = sum(len(prices) for _, prices in priced)
    if count > MOST_ROWS:
        message = f"clusters and prices make {count} rows together, and one comparison takes {MOST_ROWS}"
        fix = "give fewer clusters or prices, or ask for some of them at a time"
        raise Refused(Problem(field=CLUSTERS, code="too_many_rows", message=message, fix=fix))
    yield count
    answered_rows: list[tuple[ComparedRow, Mapping[str, Any]]] = []
    for variant, prices in priced:
        for place, price in prices:
            answered_rows.append(_row(variant, place, price, metrics, catalogue))
            yield None
    name, order = _first_known([whole for _, whole in answered_rows]) if given is None else (given.lower(), asked_order)
    descending = request.options.descending
    ordered = sorted(answered_rows, key=lambda one: _rank(one[0], one[1], order, descending=descending))
    rows = tuple(row for row, _ in ordered)
    calibrations = [whole["versions"]["calibration"] for _, whole in answered_rows if whole]
    return Comparison(metrics, name, descending, rows, versions_of(catalogue, calibrations))


def _priced(variant: Variant, catalogue: Catalogue) -> list[tuple[str, Any]]:
    """Prices of a cluster, with wildcards expanded; an unknown price remains, to be refused in its row."""
    prices: list[tuple[str, Any]] = []
    for place, value in variant.prices:
        try:
            matching = matching_prices(value, variant.parsed.question.gpu.slug, catalogue)
        except Refused:
            matching = [value]
        prices += [(place, price) for price in matching]
    return prices


def _row(
    variant: Variant, place: str, price: Any, metrics: Mapping[str, Metric], catalogue: Catalogue
) -> tuple[ComparedRow, Mapping[str, Any]]:
    """Row of a cluster at a price, and the whole answer as JSON values, empty if refused."""
    unpriced, gpu = variant.parsed, variant.parsed.question.gpu.slug
    head = _row_head(variant, None, terms_given(price), catalogue)
    try:
        matching_prices(price, gpu, catalogue)
        read = read_price(price, gpu, catalogue)
        head = _row_head(variant, read.spec, terms_of(price, gpu, catalogue), catalogue)
        own = unpriced.question.cluster
        located = Parsed(own) if own.grid_region is not None else with_region(own, price, catalogue)
        priced_question = ParsedQuestion(
            replace(unpriced.question, price=read.spec, cluster=located.spec),
            (*unpriced.assumptions, *read.assumptions, *located.assumptions),
            (*unpriced.warnings, *read.warnings, *located.warnings),
            (*unpriced.sources, *read.sources, *located.sources),
        )
        priced_answer = answer(priced_question, catalogue, advise=False)
    except Refused as refused:
        return _refused(head, [variant.entry.placed(problem, place) for problem in refused.problems]), {}
    whole = whole_of(priced_answer)
    numbers = {name: number_in(metric, whole) for name, metric in metrics.items()}
    return _answered(head, priced_answer, numbers), whole


def _row_head(variant: Variant, price: object, terms: Terms, catalogue: Catalogue) -> dict[str, Any]:
    """Fields of a row before its answer."""
    question = variant.parsed.question
    return {
        "cluster": variant.entry.called(catalogue),
        "gpu": question.gpu.slug,
        "gpus": question.cluster.gpus,
        "usd_per_gpu_hour": getattr(price, "usd_per_gpu_hour", None),
        **{name: getattr(terms, name) for name in field_names(Terms)},
    }


def _answered(head: Mapping[str, Any], found: Answer, numbers: Mapping[str, Any]) -> ComparedRow:
    return ComparedRow(
        **head,
        status=ANSWERED,
        verdict=found.verdict,
        numbers=numbers,
        reason=None,
        errors=(),
        warnings=found.warnings,
        assumptions=found.assumptions,
        id=found.id,
    )


def _refused(head: Mapping[str, Any], problems: Sequence[Problem]) -> ComparedRow:
    return ComparedRow(
        **head,
        status=REFUSED,
        verdict=None,
        reason=single_line("; ".join(f"{problem.message}; {problem.fix}" for problem in problems)),
        errors=tuple(map(row_problem, problems[:MOST_PROBLEMS])),
        warnings=(),
        assumptions=(),
        id=None,
    )


def _first_known(answers: Sequence[Mapping[str, Any]]) -> tuple[str, Metric]:
    """First default number that any answer has."""
    numbers = [(name, metric_named(COLUMNS[name])) for name in SORTED_BY]
    known = (one for one in numbers if any(number_in(one[1], whole) is not None for whole in answers))
    return next(known, numbers[-1])


def _rank(
    row: ComparedRow, whole: Mapping[str, Any], order: Metric, *, descending: bool
) -> tuple[bool, bool, bool, float]:
    """Sort key of a row."""
    value = number_in(order, whole)
    number = value["value"] if isinstance(value, Mapping) else value
    is_out = row.verdict is None or not fits(row.verdict)
    return (row.status != ANSWERED, is_out, number is None, (number or 0) * (-1 if descending else 1))
