"""What is said of a sweep beside its lists: what is asked of each row, which numbers it holds, what it is called?"""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len

from service.answers.plans import Objective
from service.estimator.noun import STRICT, Name
from service.workflows.plan_label import PlanLimits

SweepKind = Literal["estimate", "plan"]
"""What each row of a sweep is: an answer of POST /v1/estimates, or the best plan of POST /v1/plans."""

MOST_ROWS: dict[SweepKind, int] = {"estimate": 5_000_000, "plan": 50_000}
"""Rows of one sweep. Source: a choice; a million estimates take minutes of one core, a plan takes seconds."""

MOST_ITEMS = 4_096
"""Items of one list of a sweep: as many as a body takes in any list."""

LISTS = ("models", "clusters", "layouts", "recipes", "prices")
"""The lists that a sweep crosses, in the order in which its rows go through them, the last one fastest: what differs in
its run or its price alone is worked out once."""

ROWS, PLAN = "rows", "plan"
"""Questions one by one, in place of the lists; and how plans are ranked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepManner:
    """What each row of a sweep is."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    kind: SweepKind = "estimate"
    """estimate: each row is an answer of POST /v1/estimates. plan: the best plan of POST /v1/plans."""
    name: Annotated[str, Len(1, 200)] | None = None
    """What the team calls it."""
    columns: Annotated[tuple[Name, ...], Len(1, 64)] | None = None
    """Numbers of each row, by the names that cells give them; those that most callers want where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """How the plans of a sweep are ranked."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    objective: Objective = "time"
    """What the best plan has least of: time (of a step without training_tokens), cost, gpus or energy."""
    limits: PlanLimits = field(default_factory=PlanLimits)
    """What every plan has to keep to."""
