"""Comparison of one job on many clusters at many prices, as sorted rows.

What is wrong with the request is refused as a whole. What one cluster or price cannot do is a row that says why, and
not fitting is an answer like any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from service.answers.estimates import Answer, Versions
from service.answers.rows import ComparedRow, RowProblem
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.features.compare.requests import (
    CLUSTERS,
    MOST_ROWS,
    Terms,
    Variant,
    prices_meant,
    read_comparison,
    terms_of,
    terms_told,
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
from service.validation.clusters import placed
from service.validation.prices import read_price
from service.validation.questions import ReadQuestion
from service.validation.reading import Read
from service.validation.specs import field_names
from service.validation.text import one_line

ANSWERED: Final = 200
REFUSED: Final = 422
"""Status of a row, as POST /v1/estimates would give it."""


FIRST = (
    "cluster", "gpu", "gpus", "usd_per_gpu_hour", "provider", "region", "price_model", "instance_type", "rate_card",
    "price_as_of", "status", "verdict",
)  # fmt: skip
"""What stands before the numbers."""

LAST = ("reason", "errors", "warnings", "assumptions", "id")
"""What stands behind them."""

IN_WORDS = "errors"
"""What a table leaves out, because `reason` says it."""


def mended(problem: Problem) -> RowProblem:
    """A problem as a row tells it."""
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
    """What the columns of a table are called; ends of an interval by the names that cells give them.

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
"""Numbers to sort by where the caller names none; the first that a row knows."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The same job on many clusters, at many prices."""

    metrics: Mapping[str, Metric]
    """The numbers of each row, by the names that they have there."""
    sort_by: str
    """Number by which the rows stand."""
    descending: bool
    """Whether the largest comes first."""
    rows: Sequence[ComparedRow]
    """In order: those that fit, then those that do not, then those without an answer; of equals the one that was asked
    for first comes first."""
    versions: Versions
    """What the answers rest on."""


def compare(body: Mapping[str, Any], catalogue: Catalogue) -> Compared:
    """The same job on many clusters, at many prices."""
    return outcome(comparing(body, catalogue))


def comparing(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Compared]:
    """The same, answer by answer."""
    wanted = yield from read_comparison(body, catalogue)
    metrics = named_metrics("columns", wanted.manner.columns, (*FIRST, *LAST))
    given = wanted.manner.sort_by
    asked_order = number_named("sort_by", given or SORTED_BY[-1])
    priced = [(variant, _priced(variant, catalogue)) for variant in wanted.variants]
    count = sum(len(prices) for _, prices in priced)
    if count > MOST_ROWS:
        message = f"clusters and prices make {count} rows together, and one comparison takes {MOST_ROWS}"
        fix = "give fewer clusters or prices, or ask for some of them at a time"
        raise Refused(Problem(field=CLUSTERS, code="too_many_rows", message=message, fix=fix))
    yield count
    found: list[tuple[ComparedRow, Mapping[str, Any]]] = []
    for variant, prices in priced:
        for place, price in prices:
            found.append(_row(variant, place, price, metrics, catalogue))
            yield None
    name, order = _first_known([whole for _, whole in found]) if given is None else (given.lower(), asked_order)
    descending = wanted.manner.descending
    ordered = sorted(found, key=lambda one: _rank(one[0], one[1], order, descending=descending))
    rows = tuple(row for row, _ in ordered)
    calibrations = [whole["versions"]["calibration"] for _, whole in found if whole]
    return Compared(metrics, name, descending, rows, versions_of(catalogue, calibrations))


def _priced(variant: Variant, catalogue: Catalogue) -> list[tuple[str, Any]]:
    """The prices of a cluster, those that * stands for one by one; what has none stays, to be refused in its row."""
    found: list[tuple[str, Any]] = []
    for place, value in variant.prices:
        try:
            meant = prices_meant(value, variant.asked.question.gpu.slug, catalogue)
        except Refused:
            meant = [value]
        found += [(place, price) for price in meant]
    return found


def _row(
    variant: Variant, place: str, price: Any, metrics: Mapping[str, Metric], catalogue: Catalogue
) -> tuple[ComparedRow, Mapping[str, Any]]:
    """The row of a cluster at a price, and the whole JSON of its answer, empty where it is refused."""
    unpriced, gpu = variant.asked, variant.asked.question.gpu.slug
    told = _told(variant, None, terms_told(price), catalogue)
    try:
        prices_meant(price, gpu, catalogue)
        read = read_price(price, gpu, catalogue)
        told = _told(variant, read.spec, terms_of(price, gpu, catalogue), catalogue)
        own = unpriced.question.cluster
        located = Read(own) if own.grid_region is not None else placed(own, price, catalogue)
        asked = ReadQuestion(
            replace(unpriced.question, price=read.spec, cluster=located.spec),
            (*unpriced.assumptions, *read.assumptions, *located.assumptions),
            (*unpriced.warnings, *read.warnings, *located.warnings),
            (*unpriced.sources, *read.sources, *located.sources),
        )
        found = answer(asked, catalogue, advise=False)
    except Refused as refused:
        return _refused(told, [variant.entry.placed(problem, place) for problem in refused.problems]), {}
    whole = whole_of(found)
    numbers = {name: number_in(metric, whole) for name, metric in metrics.items()}
    return _answered(told, found, numbers), whole


def _told(variant: Variant, price: object, terms: Terms, catalogue: Catalogue) -> dict[str, Any]:
    """What a row says before its answer."""
    question = variant.asked.question
    return {
        "cluster": variant.entry.called(catalogue),
        "gpu": question.gpu.slug,
        "gpus": question.cluster.gpus,
        "usd_per_gpu_hour": getattr(price, "usd_per_gpu_hour", None),
        **{name: getattr(terms, name) for name in field_names(Terms)},
    }


def _answered(told: Mapping[str, Any], found: Answer, numbers: Mapping[str, Any]) -> ComparedRow:
    return ComparedRow(
        **told,
        status=ANSWERED,
        verdict=found.verdict,
        numbers=numbers,
        reason=None,
        errors=(),
        warnings=found.warnings,
        assumptions=found.assumptions,
        id=found.id,
    )


def _refused(told: Mapping[str, Any], problems: Sequence[Problem]) -> ComparedRow:
    return ComparedRow(
        **told,
        status=REFUSED,
        verdict=None,
        reason=one_line("; ".join(f"{problem.message}; {problem.fix}" for problem in problems)),
        errors=tuple(map(mended, problems[:MOST_PROBLEMS])),
        warnings=(),
        assumptions=(),
        id=None,
    )


def _first_known(answers: Sequence[Mapping[str, Any]]) -> tuple[str, Metric]:
    """The first number to sort by that an answer knows."""
    numbers = [(name, metric_named(COLUMNS[name])) for name in SORTED_BY]
    known = (one for one in numbers if any(number_in(one[1], whole) is not None for whole in answers))
    return next(known, numbers[-1])


def _rank(
    row: ComparedRow, whole: Mapping[str, Any], order: Metric, *, descending: bool
) -> tuple[bool, bool, bool, float]:
    """Where a row stands: what fits before what does not, what is known before what is not."""
    found = number_in(order, whole)
    number = found["value"] if isinstance(found, Mapping) else found
    is_out = row.verdict is None or not fits(row.verdict)
    return (row.status != ANSWERED, is_out, number is None, (number or 0) * (-1 if descending else 1))
