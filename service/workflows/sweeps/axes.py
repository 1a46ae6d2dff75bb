"""Which combination is a row of a sweep? Lists of nouns, read once, and the arithmetic from a row's place to its items.

A sweep is plain facts: whoever holds it answers each of its rows without a catalogue, and always the same.
"""

from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from service.answers.estimates import Versions
from service.errors import Problem
from service.estimator.device_calibration import CalibratedGpu
from service.estimator.gpu import Gpu
from service.estimator.model import Model
from service.estimator.question import Cluster, Layout, OwnedPrice, Price, Recipe
from service.workflows.sweep_label import SweepKind, SweepPlan
from service.workflows.wire import adapter_of


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
    """The cluster in each of the places where prices of the sweep hold, the first one being no place."""


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
    """What a price is for one GPU."""

    price: Price | OwnedPrice | None
    """The price; null where none is asked for, or where it is refused."""
    problems: tuple[Problem, ...] = ()
    """Why there is none for this GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPrice:
    """An item of the list of prices."""

    place: int
    """Where it holds: position among the places of each cluster."""
    of_gpu: dict[str, PriceOfGpu]
    """It, by catalogue name of the GPU that it is paid for."""


class Combination(NamedTuple):
    """Positions in the lists of a sweep."""

    model: int
    cluster: int
    layout: int
    recipe: int
    price: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The lists of a sweep, every item read."""

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
        """Which items a row combines; of two rows behind each other the later lists change first.

        Args:
            row: the row, from 0

        Returns:
            positions in the lists
        """
        if self.picked is not None:
            return Combination(*self.picked[row])
        places = []
        for length in reversed(self.lengths):
            row, place = divmod(row, length)
            places.append(place)
        return Combination(*reversed(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Everything that the rows of a sweep depend on."""

    kind: SweepKind
    """What each row is."""
    name: str | None
    """What the team calls it."""
    columns: tuple[str, ...]
    """Numbers of each row."""
    plan: SweepPlan
    """How plans are ranked."""
    axes: Axes
    """What is combined."""
    versions: Versions
    """What the rows rest on."""


def sweep_to_bytes(sweep: Sweep) -> bytes:
    """A sweep as it is kept and sent.

    Args:
        sweep: the sweep

    Returns:
        JSON; the same sweep is the same bytes
    """
    return adapter_of(Sweep).dump_json(sweep)


def sweep_from_bytes(content: bytes) -> Sweep:
    """A sweep that was kept or sent.

    Args:
        content: of `sweep_to_bytes`

    Returns:
        the sweep
    """
    found: Sweep = adapter_of(Sweep).validate_json(content)
    return found
