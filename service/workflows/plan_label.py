"""What is said of a plan beside its question: what to have least of, what to keep to, how many plans to name?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Interval, Len, Lt

from service.answers.plans import Objective
from service.estimator.noun import STRICT, Degree

MOST_PLANS = 100
"""Plans that are named at most; each is answered in full."""

MOST_CLUSTERS = 16
"""Clusters that one request plans on."""

MOST_MACHINES = 64
"""Clusters of each number of GPUs that one request plans on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What a plan has to keep to."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    days: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """Wall time of the whole run, as predicted."""
    cost_usd: Annotated[float, Ge(0), Lt(1e15)] | None = None
    """Cost of the whole run, as predicted."""
    gpus: Annotated[tuple[Degree, ...], Len(2, 2)] | None = None
    """Fewest and most GPUs: both of them are tried, and whole nodes between them, each twice as many as before; those
    of the cluster alone where absent."""
    headroom_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the usable memory that has to stay free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanManner:
    """How plans are ranked and how many are named."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    objective: Objective = "time"
    """What the best plan has least of: time (of a step without training_tokens), cost, gpus or energy."""
    limits: PlanLimits = PlanLimits()
    """What every plan has to keep to."""
    top: Annotated[int, Interval(ge=1, le=MOST_PLANS)] = 10
    """How many plans are named."""


CLUSTERS, WHY_NOT = "clusters", "why_not"
"""Clusters to plan on, in place of one; and a layout that is asked after."""
