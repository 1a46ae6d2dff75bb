"""Axes of a sweep: lists of parsed parts, and the mapping from a row number to its parts.

A sweep is self-contained: its rows are computed without a catalogue, and always the same.
"""

from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple

from service.answers.estimates import Versions
from service.answers.plans import Objective
from service.errors import Problem
from service.estimator.constants import CalibratedGpu
from service.estimator.question import STRICT, Cluster, Gpu, Layout, Model, OwnedPrice, Price, Recipe
from service.features.plans.schemas import PlanLimits
from service.validation.serialization import adapter_of

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
class SweepPlan:
    """How the plans of a sweep are ranked."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    objective: Objective = "time"
    """What the best plan has least of: time (of a step without training_tokens), cost, gpus or energy."""
    limits: PlanLimits = field(default_factory=PlanLimits)
    """What every plan has to keep to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptModel:
    """An item of the list of models."""

    name: str | None
    """Name in the catalogue; null where it is given inline."""
    model: Model
    """The model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptCluster:
    """An item of the list of clusters."""

    name: str | None
    """Name in the catalogue; null where it is given inline."""
    gpu: CalibratedGpu | Gpu
    """Facts of its GPU."""
    at: tuple[Cluster, ...]
    """The cluster at each place that the prices of the sweep name; the first one is without a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRecipe:
    """An item of the list of recipes."""

    recipe: Recipe
    """The recipe, without the fields that a search chooses."""
    open: dict[str, Any] = field(default_factory=dict)
    """Fields that a search chooses, as requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptLayout:
    """An item of the list of layouts."""

    layout: Layout
    """The layout, without the fields that a search chooses."""
    open: dict[str, Any] = field(default_factory=dict)
    """Fields that a search chooses, as requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOfGpu:
    """Price of one GPU."""

    price: Price | OwnedPrice | None
    """The price; null if none is requested or it is refused."""
    problems: tuple[Problem, ...] = ()
    """Problems that refuse the price for this GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPrice:
    """An item of the list of prices."""

    place: int
    """Position of its place in `at` of each cluster."""
    of_gpu: dict[str, PriceOfGpu]
    """The price by catalogue name of the GPU."""


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
        """Rows of the sweep."""
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
    """All inputs of the rows of a sweep."""

    kind: SweepKind
    """Kind of its rows."""
    name: str | None
    """Name that the team gave it."""
    columns: tuple[str, ...]
    """Numbers of each row."""
    plan: SweepPlan
    """How plans are ranked."""
    axes: Axes
    """Its lists."""
    versions: Versions
    """Versions of formulas, catalogue and calibrations."""


def sweep_to_bytes(sweep: Sweep) -> bytes:
    """Serialize a sweep for storage and workers."""
    return adapter_of(Sweep).dump_json(sweep)


def sweep_from_bytes(content: bytes) -> Sweep:
    """Read a serialized sweep."""
    sweep: Sweep = adapter_of(Sweep).validate_json(content)
    return sweep
