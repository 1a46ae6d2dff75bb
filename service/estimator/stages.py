"""What does one rank of one pipeline stage hold: which layers, how many parameters?"""

from dataclasses import dataclass

from service.estimator.degrees import Degrees, divisors
from service.estimator.job import Job
from service.estimator.ledger import Ops, Split
from service.estimator.numeric import Amount, Condition, take, where
from service.estimator.optimizers import state_numbers


@dataclass(slots=True, kw_only=True)
class Stage:
    """One pipeline stage: how many layers of each kind, and whether it has the ends of the model."""

    index: Amount
    """Stage, from 0."""
    kind_counts: tuple[Amount, ...]
    """Layers of each kind of the ledger."""
    is_first: Condition
    """It holds the embedding."""
    is_last: Condition
    """It holds the head."""

    @property
    def layers(self) -> Amount:
        """Layers of the stage [1]."""
        total: Amount = 0
        for count in self.kind_counts:
            total = total + count
        return total


@dataclass(slots=True, kw_only=True)
class RankParameters:
    """Parameters and optimizer numbers of one rank before any data-parallel sharding."""

    dense: Amount
    """Parameters outside the routed experts."""
    expert: Amount
    """Parameters of its routed experts."""
    dense_states: Amount
    """Numbers of optimizer state outside the routed experts."""
    expert_states: Amount
    """Numbers of optimizer state of its routed experts."""


def _prefix(job: Job, kind: int) -> tuple[int, ...]:
    """Layers of a kind before each layer boundary."""
    totals = [0]
    for layer_kind in job.ledger.layer_kinds:
        totals.append(totals[-1] + (1 if layer_kind == kind else 0))
    return tuple(totals)


def _counts_between(job: Job, first: Amount, last: Amount) -> tuple[Amount, ...]:
    if len(job.ledger.kinds) == 1:
        return (last - first,)
    prefixes = [_prefix(job, kind) for kind in range(len(job.ledger.kinds))]
    return tuple(take(prefix, last) - take(prefix, first) for prefix in prefixes)


def stage_at(job: Job, degrees: Degrees, index: Amount, stage_layers: tuple[int, ...] | None, chunks: int) -> Stage:
    """One stage of a layout: the layers of its chunks, dealt round-robin.

    Args:
        job: the job
        degrees: the layout
        index: stage, from 0 [1]
        stage_layers: layers of each stage where they are uneven, else None
        chunks: the largest number of virtual stages in the column (of the one layout) [1]

    Returns:
        the stage
    """
    counts: tuple[Amount, ...] = tuple(0 for _ in job.ledger.kinds)
    if stage_layers is not None:
        first = take(tuple(sum(stage_layers[:i]) for i in range(len(stage_layers))), index)
        counts = _counts_between(job, first, first + take(stage_layers, index))
    else:
        size = job.model.num_hidden_layers / (degrees.pipeline * degrees.virtual_pipeline)
        for chunk in range(chunks):
            present = where(degrees.virtual_pipeline > chunk, 1, 0)
            first = (chunk * degrees.pipeline + index) * size * present
            inside = _counts_between(job, first, first + size)
            counts = tuple(total + count * present for total, count in zip(counts, inside, strict=True))
    return Stage(index=index, kind_counts=counts, is_first=index == 0, is_last=index == degrees.pipeline - 1)


def _sums(ops: Ops, job: Job, split: tuple[Amount, ...], *, with_tied: bool) -> tuple[Amount, Amount, Amount, Amount]:
    dense: Amount = 0
    expert: Amount = 0
    dense_states: Amount = 0
    expert_states: Amount = 0
    for op in ops:
        for weight in op.weights:
            if weight.tied and not with_tied:
                continue
            divisor = split[weight.split]
            parameters, states = weight.parameters / divisor, state_numbers(job.optimizer, weight) / divisor
            if weight.split is Split.EXPERT:
                expert = expert + parameters
                expert_states = expert_states + states
            else:
                dense = dense + parameters
                dense_states = dense_states + states
    return dense, expert, dense_states, expert_states


def rank_parameters(job: Job, degrees: Degrees, stage: Stage) -> RankParameters:
    """Parameters of one rank of a stage before any data-parallel sharding.

    A tied head on another stage than the embedding is a second copy.

    Args:
        job: the job
        degrees: the layout
        stage: the stage

    Returns:
        the parameters [1]

    Source:
        Megatron-LM theoretical_memory_usage.py and transformer layers (what tensor ranks hold whole)
    """
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    ledger = job.ledger
    groups = [
        (where(stage.is_first, 1, 0), ledger.embedding, False),
        *((count, ops, False) for count, ops in zip(stage.kind_counts, ledger.kinds, strict=True)),
        (where(stage.is_last, 1, 0), ledger.multi_token, False),
        (where(stage.is_last, where(degrees.pipeline > 1, 0, 1), 0), ledger.head, False),
        (where(stage.is_last, where(degrees.pipeline > 1, 1, 0), 0), ledger.head, True),
    ]
    held: list[Amount] = [0, 0, 0, 0]
    for times, ops, with_tied in groups:
        sums = _sums(ops, job, split, with_tied=with_tied)
        held = [total + times * part for total, part in zip(held, sums, strict=True)]
    return RankParameters(dense=held[0], expert=held[1], dense_states=held[2], expert_states=held[3])
