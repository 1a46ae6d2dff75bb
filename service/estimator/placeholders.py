"""Which empty gradients does Transformer Engine keep, one for each shape of weight?"""

from service.estimator.degrees import Degrees, divisors
from service.estimator.job import Job
from service.estimator.ledger import Op, Ops, Split, Weight, WeightRole
from service.estimator.numeric import Amount, Condition, maximum, where
from service.estimator.software import version_of
from service.estimator.stages import Stage
from service.estimator.versions import at_least

CACHED_SINCE = "2.3"
GROUPED_CACHED_SINCE = "2.10"
"""Transformer Engine keeps the empty gradients of its linear layers, and of grouped ones, from these versions on.
Source: NVIDIA/TransformerEngine@ba5dc5dd and @d2945c6a."""

HEAD_CACHED_SINCE = "0.14"
"""Megatron-Core keeps that of the head from this version on. Source: NVIDIA/Megatron-LM@e7c55de9."""

GRADIENT_BYTES = 2.0
"""Bytes of one number of an empty gradient: the weights' 16-bit format, for fp8 weights too.
Source: NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py get_dummy_wgrad."""


def placeholder_bytes(job: Job, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes of the empty gradients that one rank of a stage keeps once its first backward pass has run.

    Products of weight gradients add to the accumulated gradients themselves; what autograd is handed instead is an
    empty tensor of the weight's shape, one for all weights of that shape.

    Formula:
        2 x sum over distinct shapes of matrices, of one expert where they are grouped, and of the head

    Args:
        job: the job
        degrees: the layout
        stage: the stage

    Returns:
        bytes of one rank [byte]

    Source:
        NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py get_dummy_wgrad; NVIDIA/Megatron-LM@e7c55de9
        core/tensor_parallel/layers.py

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> placeholder_bytes(sample_job(), sample_degrees(), stage) == 2 * (218_103_808 + 128_256 * 4096)
    True
    """
    if not job.software.gradient_fusion or not job.implementation.uses_transformer_engine:
        return 0.0
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    cached = _cached(job)
    shapes: dict[tuple[int, int], Amount] = {}
    groups: list[tuple[Condition, Ops]] = [(stage.is_last, job.ledger.head), (stage.depths > 0, job.ledger.depth)]
    groups += [(count > 0, ops) for count, ops in zip(stage.kind_counts, job.ledger.kinds, strict=True)]
    for is_held, ops in groups:
        for op in ops:
            shape, numbers = _matrix(op, cached, degrees, split)
            if shape is not None:
                each = where(is_held, GRADIENT_BYTES * numbers, 0.0)
                shapes[shape] = maximum(shapes.get(shape, 0.0), each)
    return sum(shapes.values(), 0.0)


def _cached(job: Job) -> set[tuple[WeightRole, bool]]:
    """Roles of weights that have an empty gradient, with whether they are of experts."""
    engine, core = version_of(job.software, "transformer_engine"), version_of(job.software, "megatron_core")
    if not at_least(engine, CACHED_SINCE):
        return set()
    cached: set[tuple[WeightRole, bool]] = {("matrix", False)}
    if at_least(core, HEAD_CACHED_SINCE):
        cached.add(("head", False))
    if not job.software.grouped_experts or at_least(engine, GROUPED_CACHED_SINCE):
        cached.add(("matrix", True))
    return cached


def _matrix(
    op: Op, cached: set[tuple[WeightRole, bool]], degrees: Degrees, split: tuple[Amount, ...]
) -> tuple[tuple[int, int] | None, Amount]:
    """The undivided shape of the one matrix that an operation's weights form side by side, and a rank's part of it."""
    found = [
        weight for weight in op.weights if weight.trained and (weight.role, weight.split is Split.EXPERT) in cached
    ]
    if not found or op.name == "moe.router":
        return None, 0.0
    numbers: Amount = 0.0
    for weight in found:
        numbers = numbers + weight.rows * weight.columns / _divisor(weight, degrees, split)
    return (found[0].rows, sum(weight.columns for weight in found)), numbers


def _divisor(weight: Weight, degrees: Degrees, split: tuple[Amount, ...]) -> Amount:
    """By how much tensor ranks divide one matrix; of experts, one is meant."""
    return split[weight.split] / degrees.expert if weight.split is Split.EXPERT else split[weight.split]
