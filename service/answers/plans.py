"""Plans for an open layout, and counts of what was searched."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from service.answers.estimates import Versions
from service.answers.rows import RowProblem
from service.estimator.answer import Interval, Verdict
from service.estimator.question import DESCRIBED, Cluster, Layout, Recipe

Objective = Literal["time", "cost", "gpus", "energy"]
"""What the best plan has least of: days (seconds of a step without training_tokens), dollars, GPUs, kilowatt-hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One plan; its recipe, layout and cluster are a question that an estimate answers with the same numbers."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    rank: int
    """From 1; that of the front is by time."""
    recipe: Recipe
    """The recipe, micro-batch and recompute chosen."""
    layout: Layout
    """The layout, every field filled."""
    cluster: Cluster
    """What it runs on."""
    verdict: Verdict
    """fits, but for the nearest of layouts of which none does."""
    step_seconds: Interval
    """Wall time of one optimizer step."""
    mfu_fraction: Interval
    """Model FLOP over what the GPUs could do."""
    device_peak_bytes: Interval
    """Memory of the fullest GPU."""
    headroom_bytes: float
    """Memory left on it; negative where bytes are missing."""
    days: Interval | None
    """Wall time of the run; null without training_tokens."""
    gpu_hours: Interval | None
    """The run's; null without training_tokens."""
    cost_usd: Interval | None
    """The run's; null without training_tokens or a price."""
    energy_kwh: Interval | None
    """The run's; null without training_tokens."""
    reason: str | None
    """Why its step takes longer than that of the first plan; null where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts:
    """How many layouts were looked at, and what became of them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    generated: int
    """Layouts of the space; those that are refused and those that are scored."""
    refused: dict[str, int]
    """Those that break a rule, by the first one that they break."""
    scored: int
    """Legal layouts whose memory and time were computed."""
    fitting: int
    """Those of them that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawback:
    """What keeps a layout from being the best plan."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    reason: str
    """In one sentence."""
    errors: tuple[RowProblem, ...]
    """Rules that it breaks; empty where it is legal."""
    plan: PlanRow | None
    """What it takes; null where it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """The best layouts for a job."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    objective: Objective
    """What the plans have least of."""
    plans: tuple[PlanRow, ...]
    """The best that keep to all limits, best first."""
    pareto: tuple[PlanRow, ...]
    """Plans of which none is faster, cheaper and leaves more memory at once, fastest first."""
    nearest: PlanRow | None
    """The layout that takes least memory, where none fits; else null."""
    counts: PlanCounts
    """Numbers of layouts, on all clusters."""
    why_not: Drawback | None
    """Why the requested layout is not the best; null where the request names none."""
    assumptions: tuple[str, ...]
    """Assumptions of the answer."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    versions: Versions
    """Versions under which the answer holds."""
