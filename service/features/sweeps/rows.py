"""Rows of a sweep: each combination with its answer or the reason for its refusal.

Rows that differ only in their price share the rest of their estimate.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Protocol

from service.errors import Problem, Refused
from service.estimator.answer import Estimate
from service.estimator.question import Price, Question, Recompute
from service.estimator.resolve import ResolvedQuestion, configuration_of
from service.estimator.rules.recipe import problems_of_run
from service.estimator.run import totals
from service.estimator.run.totals import Running, at_price, running_of
from service.features.compare.compare import ANSWERED, REFUSED
from service.features.estimates.metrics import fits
from service.features.plans.schemas import constraints_of, on_each_size, ranking_problems
from service.features.plans.search_plans import bounds_of, unmet
from service.features.sweeps.axes import Axes, Combination, Sweep
from service.features.sweeps.columns import OF_PLANS, Cell, Number, numbers_of
from service.planner.plans import plans_of
from service.planner.space import Constraints
from service.validation.serialization import NotFinite, to_bytes
from service.validation.text import single_line


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """Answer of a row."""

    estimate: Estimate | None
    """The estimate; None if no plan fits the limits."""
    beside: tuple[Cell, ...] = ()
    """Further cells of a plan."""
    reason: str | None = None
    """Reason for a missing answer."""


class RowAnswerer(Protocol):
    """Answers one row after another and may reuse results of the row before."""

    def answer(self, question: Question, at: Combination) -> RowAnswer:
        """Answer of a row."""


@dataclass(slots=True)
class Counts:
    """Counts of finished rows."""

    rows: int = 0
    """Rows."""
    answered: int = 0
    """Rows with an answer."""
    refused: int = 0
    """Refused rows."""
    fitting: int = 0
    """Rows whose job fits, or may fit."""

    def add(self, other: "Counts") -> None:
        """Add further rows."""
        self.rows += other.rows
        self.answered += other.answered
        self.refused += other.refused
        self.fitting += other.fitting


@dataclass(slots=True)
class Rows:
    """Rows of a sweep and counts of the computed ones."""

    sweep: Sweep
    """The sweep."""
    answerer: RowAnswerer
    """Answerer of its rows."""
    counts: Counts = field(default_factory=Counts)
    """Counts of computed rows."""
    refused: Counter[str] = field(default_factory=Counter)
    """Refused rows by the code of their first problem."""
    _numbers: tuple[Number, ...] = ()

    def __post_init__(self) -> None:
        self._numbers = numbers_of(self.sweep)

    def of(self, first: int, count: int) -> Iterator[tuple[Cell, ...]]:
        """Consecutive rows."""
        for row in range(first, first + count):
            yield self._row(row)

    def _row(self, row: int) -> tuple[Cell, ...]:
        axes = self.sweep.axes
        at = axes.at(row)
        positions = at if axes.picked is None else ()
        model, cluster = axes.models[at.model], axes.clusters[at.cluster]
        priced = axes.prices[at.price].of_gpu[cluster.gpu.slug]
        rate = priced.price.usd_per_gpu_hour if isinstance(priced.price, Price) else None
        start = (row, *positions, model.name, cluster.name, cluster.gpu.slug)
        self.counts.rows += 1
        try:
            row_answer = self.answerer.answer(question_at(axes, at), at)
            numbers = self._cells(row_answer)
        except Refused as refused:
            self.counts.refused += 1
            self.refused[refused.problems[0].code] += 1
            return (*start, cluster.at[0].gpus, rate, REFUSED, None, *self._nothing(), _reason(refused.problems))
        self.counts.answered += 1
        verdict = None if row_answer.estimate is None else row_answer.estimate.verdict
        self.counts.fitting += verdict is not None and fits(verdict)
        gpus = cluster.at[0].gpus if row_answer.estimate is None else row_answer.estimate.resolved.cluster.gpus
        return (*start, gpus, rate, ANSWERED, verdict, *numbers, *row_answer.beside, row_answer.reason)

    def _cells(self, found: RowAnswer) -> list[float | None]:
        estimate = found.estimate
        if estimate is None:
            return [None for number in self._numbers for _ in number.names]
        cells = [cell for number in self._numbers for cell in number.cells(estimate)]
        if not all(cell is None or isfinite(cell) for cell in cells):
            raise NotFinite
        return cells

    def _nothing(self) -> list[None]:
        """Empty cells of a refused row, between its verdict and its reason."""
        beside = len(OF_PLANS) if self.sweep.kind == "plan" else 0
        return [None] * (sum(len(number.names) for number in self._numbers) + beside)


def question_at(axes: Axes, at: Combination) -> Question:
    """The question of a row."""
    cluster, price = axes.clusters[at.cluster], axes.prices[at.price]
    priced = price.of_gpu[cluster.gpu.slug]
    if priced.problems:
        raise Refused(*priced.problems)
    return Question(
        model=axes.models[at.model].model,
        recipe=axes.recipes[at.recipe].recipe,
        layout=axes.layouts[at.layout].layout,
        cluster=cluster.at[price.place],
        gpu=cluster.gpu,
        price=priced.price,
    )


def _reason(problems: Sequence[Problem]) -> str:
    return single_line("; ".join(f"{problem.message}; {problem.fix}" for problem in problems))


class EstimateAnswerer:
    """Answers the rows of a sweep of estimates."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._at: Combination | None = None
        """Positions of the previous row, without its price."""
        self._configuration: ResolvedQuestion | None = None
        self._problems: tuple[Problem, ...] = ()
        """Its problems at any price."""
        self._running: dict[int, Running] = {}
        """Its run by place of the price."""

    def answer(self, question: Question, at: Combination) -> RowAnswer:
        """Answer of a row."""
        unpriced = at._replace(price=0)
        if unpriced != self._at:
            self._configure(replace(question, price=None))
            self._at = unpriced
        problems = problems_of_run(question)
        if self._configuration is None or problems:
            raise Refused(*dict.fromkeys((*self._problems, *problems)))
        place = self._axes.prices[at.price].place
        if place not in self._running:
            self._running[place] = running_of(question, self._configuration)
        return RowAnswer(totals.numbers_of(at_price(self._running[place], question.price)))

    def _configure(self, unpriced: Question) -> None:
        """Resolve another configuration, or store its problems."""
        self._configuration, self._problems, self._running = None, (), {}
        try:
            self._configuration = configuration_of(unpriced)
        except Refused as refused:
            self._problems = tuple(refused.problems)


class PlanAnswerer:
    """Answers the rows of a sweep of plans."""

    def __init__(self, sweep: Sweep) -> None:
        self._axes = sweep.axes
        self._plan = sweep.plan

    def answer(self, question: Question, at: Combination) -> RowAnswer:
        """Answer of a row."""
        limits = self._plan.limits
        problems = ranking_problems(question.recipe, limits, is_priced=question.price is not None)
        if problems:
            raise Refused(*problems)
        open_fields = {"layout": self._axes.layouts[at.layout].open, "recipe": self._axes.recipes[at.recipe].open}
        allowed, _ = constraints_of(open_fields)
        *_, found = plans_of(
            on_each_size(question, limits), Constraints(allowed), self._plan.objective, bounds_of(limits), 1
        )
        counts = (found.generated, found.scored, found.fitting)
        if not found.best:
            return RowAnswer(None, (None, None, *counts), "; ".join(unmet(found)))
        best = found.best[0].answer
        chosen = best.resolved
        return RowAnswer(best, (_recompute_cell(chosen.recipe.recompute), chosen.layout.schedule, *counts))


def _recompute_cell(recompute: str | Recompute) -> str:
    """Recompute as a cell: its name, or its JSON."""
    return recompute if isinstance(recompute, str) else to_bytes(recompute).decode()


def rows_of(sweep: Sweep) -> Rows:
    """Rows of a sweep, not computed yet."""
    return Rows(sweep, PlanAnswerer(sweep) if sweep.kind == "plan" else EstimateAnswerer(sweep.axes))
