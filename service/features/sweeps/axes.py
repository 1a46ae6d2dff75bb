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
"""Items of one list of a sweep: as many as a body takes in any list."""

LISTS = ("models", "clusters", "layouts", "recipes", "prices")
"""Lists that a sweep crosses, in row order, the last one fastest: parts of an estimate that do not depend on the run
or the price are computed once."""

ROWS, PLAN = "rows", "plan"
"""Questions one by one, in place of the lists; and the ranking of plans."""


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
    """What the catalogue calls it; null where it is given inline."""
    model: Model
    """The model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptCluster:
    """An item of the list of clusters."""

    name: str | None
    """What the catalogue calls it; null where it is given inline."""
    gpu: CalibratedGpu | Gpu
    """Facts of its GPU."""
    at: tuple[Cluster, ...]
    """The cluster at each place of the prices of the sweep, the first one being no place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRecipe:
    """An item of the list of recipes."""

    recipe: Recipe
    """The recipe, without what is left to a search."""
    open: dict[str, Any] = field(default_factory=dict)
    """What a search may choose of it, as it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptLayout:
    """An item of the list of layouts."""

    layout: Layout
    """The layout; nothing is pinned where a search chooses."""
    open: dict[str, Any] = field(default_factory=dict)
    """What a search may choose of it, as it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOfGpu:
    """Price of one GPU."""

    price: Price | OwnedPrice | None
    """The price; null if none is requested or it is refused."""
    problems: tuple[Problem, ...] = ()
    """Why there is none for this GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPrice:
    """An item of the list of prices."""

    place: int
    """Its place: position among the places of each cluster."""
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
    """Positions of each row, where rows are given one by one; null where the lists are crossed."""

    @property
    def lengths(self) -> Combination:
        """Items of each list."""
        return Combination(*map(len, (self.models, self.clusters, self.layouts, self.recipes, self.prices)))

    @property
    def rows(self) -> int:
        """Rows of the sweep."""
        return prod(self.lengths) if self.picked is None else len(self.picked)

    def at(self, row: int) -> Combination:
        """Items that a row combines; of consecutive rows the later lists change first."""
        if self.picked is not None:
            return Combination(*self.picked[row])
        places = []
        for length in reversed(self.lengths):
            row, place = divmod(row, length)
            places.append(place)
        return Combination(*reversed(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All inputs of the rows of a sweep."""

    kind: SweepKind
    """Kind of its rows."""
    name: str | None
    """What the team calls it."""
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
