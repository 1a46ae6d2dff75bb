"""Rows of a sweep: each combination answered, or the reason why it cannot be.

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
from service.estimator.resolve import ResolvedQuestion, configuration_of, run_problems
from service.estimator.run import totals
from service.estimator.run.totals import Running, at_price, running_of
from service.features.compare.compare import ANSWERED, REFUSED
from service.features.estimates.metrics import fits
from service.features.plans.requests import freed, missing, sized
from service.features.plans.search_plans import bounds_of, unmet
from service.features.sweeps.axes import Axes, Combination, Sweep
from service.features.sweeps.columns import OF_PLANS, Cell, Number, numbers_of
from service.planner.plans import plans_of
from service.planner.space import Constraints
from service.validation.serialization import NotFinite, to_bytes
from service.validation.text import one_line


@dataclass(frozen=True, slots=True)
class Found:
    """What a row answers."""

    estimate: Estimate | None
    """The answer; None where no plan is left."""
    beside: tuple[Cell, ...] = ()
    """What else is said of a plan."""
    reason: str | None = None
    """Why there is no answer."""


class Answering(Protocol):
    """Answers one row after another; what was worked out for a row may be used again for the next one."""

    def answer(self, asked: Question, at: Combination) -> Found:
        """What a row answers."""


@dataclass(slots=True)
class Counts:
    """What became of the rows so far."""

    rows: int = 0
    """Rows."""
    answered: int = 0
    """Those with an answer."""
    refused: int = 0
    """Those that cannot be answered."""
    fitting: int = 0
    """Those whose job fits, or may fit."""

    def add(self, other: "Counts") -> None:
        """Count further rows too."""
        self.rows += other.rows
        self.answered += other.answered
        self.refused += other.refused
        self.fitting += other.fitting


@dataclass(slots=True)
class Rows:
    """The rows of a sweep, and what became of those that were asked for."""

    sweep: Sweep
    """The sweep."""
    answering: Answering
    """Answers them."""
    counts: Counts = field(default_factory=Counts)
    """What became of them."""
    refused: Counter[str] = field(default_factory=Counter)
    """Rows by the first rule that they break."""
    _numbers: tuple[Number, ...] = ()

    def __post_init__(self) -> None:
        self._numbers = numbers_of(self.sweep)

    def of(self, first: int, count: int) -> Iterator[tuple[Cell, ...]]:
        """Some rows behind each other."""
        for row in range(first, first + count):
            yield self._row(row)

    def _row(self, row: int) -> tuple[Cell, ...]:
        axes = self.sweep.axes
        at = axes.at(row)
        positions = at if axes.picked is None else ()
        model, cluster = axes.models[at.model], axes.clusters[at.cluster]
        priced = axes.prices[at.price].of_gpu[cluster.gpu.slug]
        rate = priced.price.usd_per_gpu_hour if isinstance(priced.price, Price) else None
        said = (row, *positions, model.name, cluster.name, cluster.gpu.slug)
        self.counts.rows += 1
        try:
            found = self.answering.answer(question_at(axes, at), at)
            numbers = self._cells(found)
        except Refused as refused:
            self.counts.refused += 1
            self.refused[refused.problems[0].code] += 1
            return (*said, cluster.at[0].gpus, rate, REFUSED, None, *self._nothing(), _reason(refused.problems))
        self.counts.answered += 1
        verdict = None if found.estimate is None else found.estimate.verdict
        self.counts.fitting += verdict is not None and fits(verdict)
        gpus = cluster.at[0].gpus if found.estimate is None else found.estimate.resolved.cluster.gpus
        return (*said, gpus, rate, ANSWERED, verdict, *numbers, *found.beside, found.reason)

    def _cells(self, found: Found) -> list[float | None]:
        estimate = found.estimate
        if estimate is None:
            return [None for number in self._numbers for _ in number.names]
        cells = [cell for number in self._numbers for cell in number.cells(estimate)]
        if not all(cell is None or isfinite(cell) for cell in cells):
            raise NotFinite
        return cells

    def _nothing(self) -> list[None]:
        """The cells of a row that is not answered, between its verdict and its reason."""
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
    return one_line("; ".join(f"{problem.message}; {problem.fix}" for problem in problems))


class Estimating:
    """Answers the rows of a sweep of estimates."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._at: Combination | None = None
        """Positions of the row before, its price left out."""
        self._configuration: ResolvedQuestion | None = None
        self._problems: tuple[Problem, ...] = ()
        """What is wrong with it at any price."""
        self._running: dict[int, Running] = {}
        """Its run, by the place where its price holds."""

    def answer(self, asked: Question, at: Combination) -> Found:
        """What a row answers."""
        unpriced = at._replace(price=0)
        if unpriced != self._at:
            self._turn_to(replace(asked, price=None))
            self._at = unpriced
        problems = run_problems(asked)
        if self._configuration is None or problems:
            raise Refused(*dict.fromkeys((*self._problems, *problems)))
        place = self._axes.prices[at.price].place
        if place not in self._running:
            self._running[place] = running_of(asked, self._configuration)
        return Found(totals.numbers_of(at_price(self._running[place], asked.price)))

    def _turn_to(self, unpriced: Question) -> None:
        """Look up another configuration, or what is wrong with it."""
        self._configuration, self._problems, self._running = None, (), {}
        try:
            self._configuration = configuration_of(unpriced)
        except Refused as refused:
            self._problems = tuple(refused.problems)


class Planning:
    """Answers the rows of a sweep of plans."""

    def __init__(self, sweep: Sweep) -> None:
        self._axes = sweep.axes
        self._plan = sweep.plan

    def answer(self, asked: Question, at: Combination) -> Found:
        """What a row answers."""
        limits = self._plan.limits
        problems = missing(asked.recipe, limits, is_priced=asked.price is not None)
        if problems:
            raise Refused(*problems)
        open_fields = {"layout": self._axes.layouts[at.layout].open, "recipe": self._axes.recipes[at.recipe].open}
        allowed, _ = freed(open_fields)
        *_, found = plans_of(sized(asked, limits), Constraints(allowed), self._plan.objective, bounds_of(limits), 1)
        counts = (found.generated, found.scored, found.fitting)
        if not found.best:
            return Found(None, (None, None, *counts), "; ".join(unmet(found)))
        best = found.best[0].answer
        chosen = best.resolved
        return Found(best, (_said(chosen.recipe.recompute), chosen.layout.schedule, *counts))


def _said(recompute: str | Recompute) -> str:
    """Recompute in a cell: its name, or its JSON where it is more than that."""
    return recompute if isinstance(recompute, str) else to_bytes(recompute).decode()


def rows_of(sweep: Sweep) -> Rows:
    """The rows of a sweep, none worked out yet."""
    return Rows(sweep, Planning(sweep) if sweep.kind == "plan" else Estimating(sweep.axes))
