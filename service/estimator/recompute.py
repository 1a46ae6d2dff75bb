"""What stays in memory of a layer until its backward pass, and what is computed again?"""

from dataclasses import dataclass
from functools import reduce

from service.estimator.degrees import Degrees, divisors
from service.estimator.job import Job
from service.estimator.ledger import Ops, Saved, Split
from service.estimator.names import RecomputeModule
from service.estimator.numeric import Amount, ceil_div, maximum, minimum, where
from service.estimator.question import Recompute
from service.estimator.rerun import by_operation, kept_matrices
from service.estimator.software import version_of
from service.estimator.stages import Stage
from service.estimator.stream import handed_stream_bytes
from service.estimator.versions import at_least

KEEP_ALL = Recompute(granularity="none")
"""Nothing is computed again."""


def is_dropped(saved: Saved, rule: Recompute) -> bool:
    """Whether selective recompute drops a saved tensor.

    Args:
        saved: the tensor
        rule: the recompute rule

    Returns:
        True where one of its modules is selected
    """
    return rule.granularity == "selective" and any(module in rule.modules for module in saved.modules)


def kept_bytes(ops: Ops, rule: Recompute, split: tuple[Amount, ...]) -> Amount:
    """Bytes of one sequence that one rank keeps of some operations, context ranks not yet counted.

    Formula:
        sum over saved tensors that the rule does not drop of bytes / divisor

    Args:
        ops: the operations
        rule: the recompute rule; only its selective form drops tensors here
        split: divisor of each split [1]

    Returns:
        bytes of one sequence [byte]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, sections 4 and 5

    >>> from service.estimator.ledger import Op
    >>> norm = Op(name="n", kind="elementwise", split=Split.WHOLE, saved=(Saved(8, Split.WHOLE),))
    >>> kept_bytes((norm,), Recompute(granularity="none"), (1,) * 9)
    8.0
    """
    kept: Amount = 0.0
    for op in ops:
        for saved in op.saved:
            if not is_dropped(saved, rule):
                kept = kept + saved.bytes / split[saved.split]
    return kept


def recomputed_layers(rule: Recompute, layers: Amount, chunks: Amount) -> Amount:
    """Layers of a stage that run their forward pass again under full recompute.

    Formula:
        block: min(n v, layers); uniform: all

    Args:
        rule: the recompute rule
        layers: layers of the stage [1]
        chunks: model chunks of the stage, v [1]

    Returns:
        layers [1]

    Source:
        Megatron-LM arguments recompute-method, recompute-num-layers

    >>> recomputed_layers(Recompute(granularity="full", method="block", layers=5), 8, 1)
    5
    """
    if rule.granularity != "full":
        return 0
    return minimum(rule.layers * chunks, layers) if rule.method == "block" and rule.layers is not None else layers


def repeated_forwards(
    rule: Recompute, layers: Amount, chunks: Amount, modules: tuple[RecomputeModule, ...] = ()
) -> Amount:
    """How often recompute repeats the forward pass of some modules, and so what they send.

    Formula:
        full: recomputed layers / layers; selective: 1 where one of the modules is selected

    Args:
        rule: the recompute rule
        layers: layers of the stage [1]
        chunks: model chunks of the stage [1]
        modules: the modules; none of them is ever selected where empty

    Returns:
        forward passes beside the first, averaged over the layers [1]

    Source:
        Megatron-LM tensor_parallel/random.py checkpoint (runs the forward function again, collectives included)

    >>> repeated_forwards(Recompute(granularity="full"), 8, 1), repeated_forwards(Recompute(granularity="none"), 8, 1)
    (1.0, 0.0)
    """
    if rule.granularity == "selective":
        return 1.0 if any(module in rule.modules for module in modules) else 0.0
    return recomputed_layers(rule, layers, chunks) / maximum(layers, 1)


def trained_layers(job: Job, counts: tuple[Amount, ...]) -> Amount:
    """Layers that the backward pass reaches: all but those with nothing trained in or before them.

    Formula:
        sum over the kinds of layer that have a backward pass of their layers

    Args:
        job: the job
        counts: layers of each kind [1]

    Returns:
        layers [1]

    Source:
        definition; torch.utils.checkpoint keeps and repeats nothing without a gradient

    >>> from service.estimator.samples import sample_job
    >>> trained_layers(sample_job(), (32,))
    32
    """
    total: Amount = 0
    for count, ops in zip(counts, job.ledger.kinds, strict=True):
        total = total + (count if ops[0].in_trained_layer else 0)
    return total


@dataclass(slots=True)
class Activations:
    """Activations of one micro-batch on one rank of a stage."""

    kept_bytes: tuple[Amount, ...]
    """What each chunk keeps for each micro-batch in flight."""
    again_bytes: Amount
    """What lives once, while layers are computed again."""
    largest_bytes: Amount
    """What the largest layer keeps for each micro-batch."""


def stage_activations(job: Job, degrees: Degrees, stage: Stage) -> Activations:
    """Activations that one rank keeps of one micro-batch, and those of the layers being computed again.

    Formula:
        none: sum of what each layer keeps
        selective: the same without what is dropped; once, the dropped tensors of the layer that loses most
        full: one residual stream for each group of layers; once, a group's activations beside the stream it starts from

    Args:
        job: the job
        degrees: the layout
        stage: the stage

    Returns:
        bytes that each chunk keeps, and bytes that live once during recompute [byte]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, table 2; Megatron-LM recompute-method uniform and block

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> found = stage_activations(sample_job(), sample_degrees(), stage)
    >>> found.kept_bytes[0] == 32 * (17 * 2 * 8192 * 4096 + 4 * 32 * 8192), found.again_bytes
    (True, 0.0)
    """
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    whole = [kept_bytes(ops, KEEP_ALL, split) * scale for ops in job.ledger.kinds]
    if job.recompute.granularity == "full":
        return _full_recompute(job, degrees, stage, whole)
    if by_operation(job.recompute):
        layer_bytes = [_kept_by_operation(job, ops, split) * scale for ops in job.ledger.kinds]
    else:
        layer_bytes = [kept_bytes(ops, job.recompute, split) * scale for ops in job.ledger.kinds]
    kept = stage.each_chunk(lambda counts: _weighted(counts, layer_bytes))
    dropped = [before - after for before, after in zip(whole, layer_bytes, strict=True)]
    return Activations(kept, largest_kind_bytes(stage, dropped), largest_kind_bytes(stage, layer_bytes))


def _kept_by_operation(job: Job, ops: Ops, split: tuple[Amount, ...]) -> Amount:
    """Bytes of one sequence that a layer keeps under recompute by operation: its input, products and attention."""
    if not ops[0].in_trained_layer:
        return 0.0
    numbers = job.recipe.sequence_length * job.precision.element_bytes
    kept: Amount = numbers * job.model.hidden_size / split[Split.SEQUENCE]
    for op in ops:
        for weight in kept_matrices(op):
            if not (job.implementation.drops_last_product and weight.matrices == ("down_proj",)):
                divisor = split[Split.SEQUENCE if weight.matrices[0] in _OUTWARD else weight.split]
                kept = kept + numbers * weight.columns / divisor
        if op.kind == "attention" and _keeps_attention(job):
            kept = kept + op.result_bytes / split[op.split]
    return kept


def _keeps_attention(job: Job) -> bool:
    version = version_of(job.software, "torchtitan")
    return job.kernel != "cudnn" or at_least(version, CUDNN_KEPT_SINCE)


CUDNN_KEPT_SINCE = "2025.12"
"""torchtitan's recompute by operation keeps the result of cuDNN's kernel from here on; before it is computed again.
Source: pytorch/torchtitan@b39377f9f distributed/activation_checkpoint.py."""

_OUTWARD = ("o_proj", "down_proj", "out_proj")
"""Matrices whose products lead back to the residual stream."""


def _weighted(counts: tuple[Amount, ...], layer_bytes: list[Amount]) -> Amount:
    total: Amount = 0.0
    for count, one in zip(counts, layer_bytes, strict=True):
        total = total + count * one
    return total


def largest_kind_bytes(stage: Stage, layer_bytes: list[Amount]) -> Amount:
    """The largest of one amount a kind of layer, among the kinds that a stage has.

    Formula:
        max over the kinds of layer that the stage has; 0 for a stage without layers

    Args:
        stage: the stage
        layer_bytes: the amount of one layer of each kind [byte]

    Returns:
        the largest [byte]

    Source:
        definition

    >>> stage = Stage(index=0, chunk_counts=((3, 0), (1, 2)), depths=0, is_first=True, is_last=True)
    >>> largest_kind_bytes(stage, [8.0, 24.0])
    24.0
    """
    pairs = zip(stage.kind_counts, layer_bytes, strict=True)
    return reduce(maximum, [where(count > 0, one, 0.0) for count, one in pairs])


def _full_recompute(job: Job, degrees: Degrees, stage: Stage, whole: list[Amount]) -> Activations:
    """Kept and live bytes under full recompute; `whole` is what each kind of layer would keep."""
    group = 1 if job.recompute.method == "block" else job.recompute.layers or 1
    stream = handed_stream_bytes(job, degrees)

    def chunk_bytes(counts: tuple[Amount, ...]) -> Amount:
        layers = trained_layers(job, counts)
        again = recomputed_layers(job.recompute, layers, 1)
        mean = _weighted(counts, whole) / maximum(layers, 1)
        return ceil_div(again, group) * stream + (layers - again) * mean

    layers = trained_layers(job, stage.kind_counts)
    live = minimum(group, layers) * largest_kind_bytes(stage, whole) - stream
    keeps_all = recomputed_layers(job.recompute, layers, degrees.virtual_pipeline) < layers
    largest = where(keeps_all, largest_kind_bytes(stage, whole), stream)
    return Activations(stage.each_chunk(chunk_bytes), where(layers > 0, live, 0.0), where(layers > 0, largest, 0.0))
