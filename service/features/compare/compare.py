"""Comparison of one job on many clusters at many prices, as sorted rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from service.answers.estimates import Answer
from service.answers.rows import MOST_ROWS, ComparedRow, ComparisonAnswer, RowProblem
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.features.compare import schemas
from service.features.estimates.answers import answer, versions_of
from service.features.estimates.metrics import (
    COLUMNS,
    Metric,
    fits,
    metric_named,
    named_metrics,
    number_cells,
    number_columns,
    number_in,
    number_named,
    whole_of,
)
from service.planner.steps import Steps, outcome
from service.tabular.lists import TableForm, csv_text, table_bytes
from service.validation.json_text import single_line
from service.validation.question_parts import read_price, with_region
from service.validation.questions import ParsedQuestion
from service.validation.reading import Parsed

ANSWERED: Final = 200
REFUSED: Final = 422
"""Status of a row, as in POST /v1/estimates."""

FIRST = (
    "cluster", "gpu", "gpus", "usd_per_gpu_hour", "provider", "region", "price_model", "instance_type", "rate_card",
    "price_as_of", "status", "verdict",
)  # fmt: skip

LAST = ("reason", "errors", "warnings", "assumptions", "id")

IN_TABLES = tuple(name for name in LAST if name != "errors")
"""Those of a table, where `reason` has the text of the errors."""

SORTED_BY = ("cost_usd", "gpu_hours", "step_seconds")
"""Default numbers to sort by; the first with any value."""

Rows = TypeVar("Rows")


@dataclass(frozen=True, slots=True)
class MetricTable(Generic[Rows]):
    """An answer whose rows hold metrics, and the same as a table."""

    answer: Rows
    metrics: Mapping[str, Metric]
    columns: Sequence[str]
    cells: Sequence[Sequence[Any]]

    def to_bytes(self, form: TableForm) -> bytes:
        return table_bytes(form, self.answer, self.columns, self.cells)

    def csv(self) -> str:
        """The table as CSV without cells that a spreadsheet runs as formulas."""
        return csv_text(self.columns, self.cells)


Comparison = MetricTable[ComparisonAnswer]
"""Sorted rows: jobs that fit, then those that do not, then refused ones; ties in request order."""


def compare(body: Mapping[str, Any], catalogue: Catalogue) -> Comparison:
    """The same job on many clusters, at many prices."""
    return outcome(compare_steps(body, catalogue))


def comparison_bytes(body: Mapping[str, Any], catalogue: Catalogue, form: TableForm) -> Steps[bytes]:
    return (yield from compare_steps(body, catalogue)).to_bytes(form)


def flat_comparison_bytes(parameters: schemas.Parameters, catalogue: Catalogue, form: TableForm) -> Steps[bytes]:
    """The same for a flat question."""
    try:
        return (yield from comparison_bytes(schemas.body_of_flat_comparison(parameters), catalogue, form))
    except Refused as refused:
        raise Refused(*map(schemas.flat_problem, refused.problems)) from None


def compare_steps(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Comparison]:
    """Compare, one answer a step."""
    request, variants = yield from schemas.read_comparison(body, catalogue)
    metrics = named_metrics("columns", request.columns, (*FIRST, *LAST))
    given = request.sort_by
    requested_order = number_named("sort_by", given or SORTED_BY[-1])
    priced = [(variant, _priced(variant, catalogue)) for variant in variants]
    count = sum(len(prices) for _, prices in priced)
    if count > MOST_ROWS:
        message = f"clusters and prices make {count} rows together, and one comparison takes {MOST_ROWS}"
        fix = "give fewer clusters or prices, or ask for some of them at a time"
        raise Refused(Problem(field=schemas.CLUSTERS, code="too_many_rows", message=message, fix=fix))
    yield count
    rows: list[tuple[ComparedRow, Mapping[str, Any]]] = []
    for variant, prices in priced:
        for place, price in prices:
            rows.append(_row(variant, place, price, metrics, catalogue))
            yield None
    if given is None:  # the first default number that any answer has
        numbers = [(name, metric_named(COLUMNS[name])) for name in SORTED_BY]
        known = (one for one in numbers if any(number_in(one[1], whole) is not None for _, whole in rows))
        name, order = next(known, numbers[-1])
    else:
        name, order = given.lower(), requested_order
    rows.sort(key=lambda one: _rank(one[0], one[1], order, descending=request.descending))
    calibrations = [whole["versions"]["calibration"] for _, whole in rows if whole]
    compared = ComparisonAnswer(
        rows=tuple(row for row, _ in rows),
        sort_by=name,
        descending=request.descending,
        versions=versions_of(catalogue, calibrations),
    )
    cells = [
        [
            *(getattr(row, name) for name in FIRST),
            *number_cells(metrics, row.numbers),
            *(getattr(row, name) for name in IN_TABLES),
        ]
        for row in compared.rows
    ]
    return MetricTable(compared, metrics, [*FIRST, *number_columns(metrics), *IN_TABLES], cells)


def _priced(variant: schemas.Variant, catalogue: Catalogue) -> list[tuple[str, Any]]:
    """Prices of a cluster, with wildcards expanded; an unknown price remains, to be refused in its row."""
    prices: list[tuple[str, Any]] = []
    for place, value in variant.prices:
        try:
            matching = schemas.matching_prices(value, variant.parsed.question.gpu.slug, catalogue)
        except Refused:
            matching = [value]
        prices += [(place, price) for price in matching]
    return prices


def _row(
    variant: schemas.Variant, place: str, price: Any, metrics: Mapping[str, Metric], catalogue: Catalogue
) -> tuple[ComparedRow, Mapping[str, Any]]:
    """Row of a cluster at a price, and the whole answer as JSON values, empty if refused."""
    unpriced, gpu = variant.parsed, variant.parsed.question.gpu.slug
    head = {
        "cluster": variant.entry.called(catalogue),
        "gpu": gpu,
        "gpus": unpriced.question.cluster.gpus,
        "usd_per_gpu_hour": None,
        **schemas.terms_given(price),
    }
    try:
        schemas.matching_prices(price, gpu, catalogue)
        read = read_price(price, gpu, catalogue)
        head |= {
            "usd_per_gpu_hour": getattr(read.spec, "usd_per_gpu_hour", None),
            **schemas.terms_of(price, gpu, catalogue),
        }
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
        problems = [variant.entry.placed(problem, place) for problem in refused.problems]
        return _compared_row(head, None, {}, problems), {}
    whole = whole_of(priced_answer)
    numbers = {name: number_in(metric, whole) for name, metric in metrics.items()}
    return _compared_row(head, priced_answer, numbers, ()), whole


def _compared_row(
    head: Mapping[str, Any], found: Answer | None, numbers: Mapping[str, Any], problems: Sequence[Problem]
) -> ComparedRow:
    return ComparedRow(
        **head,
        status=REFUSED if found is None else ANSWERED,
        verdict=None if found is None else found.verdict,
        numbers=numbers,
        reason=reason_of(problems),
        errors=row_problems(problems),
        warnings=() if found is None else found.warnings,
        assumptions=() if found is None else found.assumptions,
        id=None if found is None else found.id,
    )


def reason_of(problems: Sequence[Problem]) -> str | None:
    """Why a row is refused, in one line; None where it is answered."""
    return single_line("; ".join(f"{problem.message}; {problem.fix}" for problem in problems)) if problems else None


def row_problems(problems: Sequence[Problem]) -> tuple[RowProblem, ...]:
    return tuple(map(row_problem, problems[:MOST_PROBLEMS]))


def row_problem(problem: Problem) -> RowProblem:
    pointer = "".join(f"/{step}" for step in problem.field.split(".") if step)
    return RowProblem(pointer=pointer, code=problem.code, message=problem.message, fix=problem.fix)


def _rank(
    row: ComparedRow, whole: Mapping[str, Any], order: Metric, *, descending: bool
) -> tuple[bool, bool, bool, float]:
    value = number_in(order, whole)
    number = value["value"] if isinstance(value, Mapping) else value
    is_out = row.verdict is None or not fits(row.verdict)
    return (row.status != ANSWERED, is_out, number is None, (number or 0) * (-1 if descending else 1))
