"""Rows of a sweep: its axes, the mapping from a row number to its parts, and each combination's answer or refusal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import isfinite, prod
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from service.answers.estimates import Versions
from service.answers.names import WIRE_NAMES
from service.answers.plans import Objective
from service.errors import Problem, Refused, refuse
from service.estimator.answer import Estimate, Interval
from service.estimator.constants import CalibratedGpu
from service.estimator.question import Cluster, Gpu, Layout, Model, OwnedPrice, Price, Question, Recipe, Strict
from service.estimator.resolve import ResolvedQuestion, configuration_of
from service.estimator.rules.training import problems_of_run
from service.estimator.run import totals
from service.estimator.run.totals import compute_run
from service.features.compare.compare import ANSWERED, REFUSED
from service.features.estimates.metrics import COLUMNS, FITS, Metric, fits, number_named
from service.features.plans.schemas import PlanLimits, on_each_size, ranking_problems
from service.features.plans.search_plans import bounds_of, unmet
from service.planner.plans import plans_of
from service.planner.space import Constraints
from service.validation.json_text import single_line
from service.validation.open_fields import constraints_of
from service.validation.reading import NotFinite, adapter_of, to_bytes

SweepKind = Literal["estimate", "plan"]
"""Kind of the rows: an answer of POST /v1/estimates, or the best plan of POST /v1/plans."""

MOST_ROWS: dict[SweepKind, int] = {"estimate": 5_000_000, "plan": 50_000}
"""Rows of one sweep. Source: a choice; a million estimates take minutes of one core, a plan takes seconds."""

MOST_ITEMS = 4_096
"""Most items of one list of a sweep, which is the limit of any list in a body."""

LISTS = ("models", "clusters", "layouts", "recipes", "prices")
"""Lists that a sweep crosses. The last one changes fastest from row to row, so that consecutive rows share the parts of
an estimate that depend on neither the run nor the price."""

ROWS, PLAN = "rows", "plan"
"""Fields of a request: questions one by one, in place of the lists; and the ranking of plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan(Strict):
    """How the plans of a sweep are ranked."""

    objective: Objective = "time"
    """What the best plan has least of: time (of a step without training_tokens), cost, gpus or energy."""
    limits: PlanLimits = field(default_factory=PlanLimits)
    """What every plan has to keep to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptModel:
    name: str | None
    """Name in the catalogue; null where it is given inline."""
    model: Model


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptCluster:
    name: str | None
    """Name in the catalogue; null where it is given inline."""
    gpu: CalibratedGpu | Gpu
    at: tuple[Cluster, ...]
    """The cluster at each place that the prices of the sweep name; the first one is without a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRecipe:
    recipe: Recipe
    """The recipe, without the fields that a search chooses."""
    open: dict[str, Any] = field(default_factory=dict)
    """Fields that a search chooses, as requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptLayout:
    layout: Layout
    open: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOfGpu:
    """Price of one GPU."""

    price: Price | OwnedPrice | None
    """The price; null if none is requested or it is refused."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPrice:
    place: int
    """Position of its place in `at` of each cluster."""
    of_gpu: dict[str, PriceOfGpu]


class Combination(NamedTuple):
    """Positions in the lists of a sweep."""

    model: int
    cluster: int
    layout: int
    recipe: int
    price: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The parsed lists of a sweep."""

    models: tuple[SweptModel, ...]
    clusters: tuple[SweptCluster, ...]
    layouts: tuple[SweptLayout, ...]
    recipes: tuple[SweptRecipe, ...]
    prices: tuple[SweptPrice, ...]
    picked: tuple[tuple[int, int, int, int, int], ...] | None = None
    """List positions of each row that is given one by one; null where the lists are crossed."""

    @property
    def lengths(self) -> Combination:
        """Items of each list."""
        return Combination(*map(len, (self.models, self.clusters, self.layouts, self.recipes, self.prices)))

    @property
    def rows(self) -> int:
        return prod(self.lengths) if self.picked is None else len(self.picked)

    def at(self, row: int) -> Combination:
        """List positions of a row; the last list changes fastest."""
        if self.picked is not None:
            return Combination(*self.picked[row])
        positions = []
        for length in reversed(self.lengths):
            row, position = divmod(row, length)
            positions.append(position)
        return Combination(*reversed(positions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    kind: SweepKind
    name: str | None
    columns: tuple[str, ...]
    plan: SweepPlan
    axes: Axes
    versions: Versions


def sweep_to_bytes(sweep: Sweep) -> bytes:
    """Serialize a sweep for storage and workers."""
    return adapter_of(Sweep).dump_json(sweep)


def sweep_from_bytes(content: bytes) -> Sweep:
    sweep: Sweep = adapter_of(Sweep).validate_json(content)
    return sweep


ColumnType = Literal["int64", "double", "string"]

Cell = str | int | float | None

PLAN_NUMBERS = ("data", "tensor", "context", "pipeline", "virtual_pipeline", "expert", "zero_stage", "micro_batch")

DEFAULT_COLUMNS: Mapping[SweepKind, tuple[str, ...]] = {"estimate": tuple(COLUMNS), "plan": (*PLAN_NUMBERS, *COLUMNS)}


class SweepColumn(NamedTuple):
    """One column of the table of a sweep."""

    name: str
    type: ColumnType
    """Type of its cells, all nullable."""


POSITIONS: Final = ("model_index", "cluster_index", "layout_index", "recipe_index", "price_index")
"""Columns with the positions of the combined items."""

FIRST: Final[Sequence[SweepColumn]] = (
    *(SweepColumn(name, "int64") for name in ("row", *POSITIONS)),
    *(SweepColumn(name, "string") for name in ("model", "cluster", "gpu")),
    SweepColumn("gpus", "int64"),
    SweepColumn("usd_per_gpu_hour", "double"),
    SweepColumn("status", "int64"),
    SweepColumn("verdict", "string"),
)

OF_PLANS: Final[Sequence[SweepColumn]] = (
    *(SweepColumn(name, "string") for name in ("recompute", "schedule")),
    *(SweepColumn(f"layouts_{name}", "int64") for name in ("generated", "scored", "fitting")),
)
"""Further columns of a plan, after its numbers."""

LAST: Final[Sequence[SweepColumn]] = (SweepColumn("reason", "string"),)
"""Last column: the reason for missing numbers."""


def reserved_names(kind: SweepKind) -> tuple[str, ...]:
    """Names that numbers may not have, because every row has them."""
    return tuple(column.name for column in (*FIRST, *(OF_PLANS if kind == "plan" else ()), *LAST))


def columns_of(sweep: Sweep) -> tuple[SweepColumn, ...]:
    """The columns of the table of a sweep; ends of an interval by the names that cells give them."""
    first = FIRST if sweep.axes.picked is None else [column for column in FIRST if column.name not in POSITIONS]
    numbers = [
        SweepColumn(column, "double")
        for name in sweep.columns
        for column in ((f"{name}.low", name, f"{name}.high") if number_named("columns", name).is_interval else (name,))
    ]
    return (*first, *numbers, *(OF_PLANS if sweep.kind == "plan" else ()), *LAST)


def reader_of(metric: Metric) -> Callable[[Estimate], Any]:
    """Reader of a number in an estimate, without serializing the whole estimate."""
    if metric.path == (FITS,):
        return lambda estimate: fits(estimate.verdict)
    fields = {wire: name for name, wire in WIRE_NAMES.items()}
    names = [fields.get(step, step) for step in metric.path]
    if not metric.has_items and not any(hasattr(str, name) for name in names):
        read = attrgetter(".".join(names))

        def attribute(estimate: Estimate) -> Any:
            try:
                return read(estimate)
            except AttributeError:  # a step is missing
                return None

        return attribute
    return partial(_follow, tuple(zip(metric.path, names, strict=True)))


def _follow(steps: Sequence[tuple[str, str]], estimate: Estimate) -> Any:
    value: Any = estimate
    for step, attribute in steps:
        if value is None or isinstance(value, str):
            return None
        value = _item(value, step) if isinstance(value, tuple | list) else getattr(value, attribute, None)
    return value


def _item(items: Sequence[Any], step: str) -> Any:
    if step.isdecimal():
        return items[int(step)] if int(step) < len(items) else None
    return next((item for item in items if getattr(item, "kind", None) == step), None)


RowAnswer = tuple[Estimate | None, Sequence[Cell], str | None]
"""The estimate of a row, None if no plan fits the limits; further cells of a plan; and the reason for a missing one."""


@dataclass(slots=True)
class Counts:
    rows: int = 0
    answered: int = 0
    refused: int = 0
    fitting: int = 0
    """Rows whose job fits, or may fit."""

    def add(self, other: "Counts") -> None:
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)


class Rows:
    """Rows of a sweep, computed one after the other, and counts of the computed ones."""

    def __init__(self, sweep: Sweep) -> None:
        self.counts = Counts()
        self._sweep = sweep
        metrics = [number_named("columns", name) for name in sweep.columns]
        self._readers = [(reader_of(metric), metric.is_interval) for metric in metrics]
        self._answer = partial(_best_plan, sweep) if sweep.kind == "plan" else EstimateAnswerer().answer

    def of(self, first: int, count: int) -> Iterator[tuple[Cell, ...]]:
        """Consecutive rows."""
        for row in range(first, first + count):
            yield self._row(row)

    def _row(self, row: int) -> tuple[Cell, ...]:
        axes = self._sweep.axes
        at = axes.at(row)
        positions = at if axes.picked is None else ()
        model, cluster = axes.models[at.model], axes.clusters[at.cluster]
        priced = axes.prices[at.price].of_gpu[cluster.gpu.slug]
        rate = priced.price.usd_per_gpu_hour if isinstance(priced.price, Price) else None
        start = (row, *positions, model.name, cluster.name, cluster.gpu.slug)
        self.counts.rows += 1
        try:
            estimate, beside, reason = self._answer(question_at(axes, at), at)
            numbers = self._cells(estimate)
        except Refused as refused:
            self.counts.refused += 1
            nothing = (*self._cells(None), *(None for _ in OF_PLANS if self._sweep.kind == "plan"))
            reason = single_line("; ".join(f"{problem.message}; {problem.fix}" for problem in refused.problems))
            return (*start, cluster.at[0].gpus, rate, REFUSED, None, *nothing, reason)
        self.counts.answered += 1
        verdict = None if estimate is None else estimate.verdict
        self.counts.fitting += verdict is not None and fits(verdict)
        gpus = cluster.at[0].gpus if estimate is None else estimate.resolved.cluster.gpus
        return (*start, gpus, rate, ANSWERED, verdict, *numbers, *beside, reason)

    def _cells(self, estimate: Estimate | None) -> list[float | None]:
        """Cells of the numbers of a row: three for an interval, empty for what is unknown."""
        cells: list[float | None] = []
        for read, is_interval in self._readers:
            value = None if estimate is None else read(estimate)
            if is_interval:
                cells += (value.low, value.value, value.high) if isinstance(value, Interval) else (None, None, None)
            else:
                cells.append(None if value is None else float(value))
        if not all(cell is None or isfinite(cell) for cell in cells):
            raise NotFinite
        return cells


def question_at(axes: Axes, at: Combination) -> Question:
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


class EstimateAnswerer:
    """Answers the rows of a sweep of estimates."""

    def __init__(self) -> None:
        self._at: Combination | None = None
        """Positions of the previous row, without its price."""
        self._configuration: ResolvedQuestion | None = None
        self._problems: tuple[Problem, ...] = ()
        """Its problems at any price."""

    def answer(self, question: Question, at: Combination) -> RowAnswer:
        unpriced = at._replace(price=0)
        if unpriced != self._at:
            self._configure(replace(question, price=None))
            self._at = unpriced
        problems = problems_of_run(question)
        if self._configuration is None or problems:
            raise Refused(*dict.fromkeys((*self._problems, *problems)))
        running = compute_run(question, self._configuration)
        return totals.numbers_of(running, totals.totals_at(running)), (), None

    def _configure(self, unpriced: Question) -> None:
        """Resolve another configuration, or store its problems."""
        self._configuration, self._problems = None, ()
        try:
            self._configuration = configuration_of(unpriced)
        except Refused as refused:
            self._problems = tuple(refused.problems)


def _best_plan(sweep: Sweep, question: Question, at: Combination) -> RowAnswer:
    limits = sweep.plan.limits
    problems = ranking_problems(question.recipe, limits, is_priced=question.price is not None)
    refuse(problems)
    open_fields = {"layout": sweep.axes.layouts[at.layout].open, "recipe": sweep.axes.recipes[at.recipe].open}
    allowed, _ = constraints_of(open_fields)
    *_, found = plans_of(
        on_each_size(question, limits), Constraints(allowed), sweep.plan.objective, bounds_of(limits), 1
    )
    counts = (found.generated, found.scored, found.fitting)
    if not found.best:
        return None, (None, None, *counts), "; ".join(unmet(found))
    best = found.best[0].answer
    recompute = best.resolved.recipe.recompute
    cell = recompute if isinstance(recompute, str) else to_bytes(recompute).decode()
    return best, (cell, best.resolved.layout.schedule, *counts), None
