"""The parts of a question with every default filled by `resolve`: an unfilled field is a type error in a formula."""

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

from service.estimator.question import (
    Cluster,
    ContextMethod,
    Degree,
    GradientDtype,
    ImplementationName,
    Layout,
    OwnedPrice,
    PrecisionName,
    Price,
    Question,
    RankOrder,
    Recipe,
    RunStage,
    ScheduleName,
    Sequences,
    Software,
    StackName,
    Tokens,
    ZeroStage,
)

Part = TypeVar("Part")


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def completed(kind: type[Part], part: object, **values: Any) -> Part:
    """A part of a question as its complete kind: its own fields, but for the given values."""
    hashable: type = kind  # mypy treats type[Part] as unhashable
    return kind(**({name: getattr(part, name) for name in _field_names(hashable)} | values))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteStage(RunStage):
    """A part of a run with its batch and length."""

    global_batch: Sequences
    sequence_length: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteSoftware(Software):
    """Training software whose operations are chosen."""

    implementation: ImplementationName


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRecipe(Recipe):
    """A recipe with its batch in both units, its number formats and its software."""

    global_batch: Sequences
    global_batch_tokens: int
    stages: tuple[CompleteStage, ...] = ()
    precision: PrecisionName
    gradient_dtype: GradientDtype
    stack: StackName | Software
    vocabulary_multiple: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteLayout(Layout):
    """A layout with every degree and choice; stage_layers stays None where layers are even."""

    data: Degree
    expert_tensor: Degree
    zero_stage: ZeroStage
    shard_group: Degree
    reshard_after_forward: bool
    sequence_parallel: bool
    context_method: ContextMethod
    virtual_group: Degree
    schedule: ScheduleName
    rank_order: RankOrder


PLAIN_LAYOUT = CompleteLayout(
    data=1,
    expert_tensor=1,
    zero_stage=0,
    shard_group=1,
    reshard_after_forward=False,
    sequence_parallel=False,
    context_method="ring",
    virtual_group=1,
    schedule="1f1b",
    rank_order="tp-cp-ep-dp-pp",
)
"""One GPU, every choice at its plainest: what a search starts from, and what demands that read no layout get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCluster(Cluster):
    """A cluster with its network, failures and power."""

    scale_up_gpus: int
    inter_node_bytes_per_s: float
    failures_per_gpu_hour: float
    restart_seconds: float
    spare_fraction: float
    pue: float
    busy_power_fraction: float
    idle_power_fraction: float
    host_power_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletePrice(Price):
    """A rent with its rate of preemptions."""

    preemptions_per_instance_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteOwnedPrice(OwnedPrice):
    """Own hardware with its purchase price."""

    purchase_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteQuestion(Question):
    """A question with every default filled."""

    recipe: CompleteRecipe
    layout: CompleteLayout
    cluster: CompleteCluster
    price: CompletePrice | CompleteOwnedPrice | None = None
