"""What does one rank send for one micro-batch, axis by axis? The collectives behind its communication."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.estimator.degrees import Degrees
from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.ledger import LayerShape
from service.estimator.load import StageLoad
from service.estimator.mixers import MIXERS
from service.estimator.names import RecomputeModule
from service.estimator.numeric import Amount, maximum
from service.estimator.parallelism import context, data, expert, pipeline, tensor
from service.estimator.placement import Transfer
from service.estimator.question import Layout
from service.estimator.recompute import repeated_forwards, trained_layers
from service.estimator.stages import Stage


@dataclass(slots=True)
class Repeated:
    """What each of some layers sends."""

    layers: Amount
    """How many of them."""
    transfers: tuple[Transfer, ...]
    """What one sends for one micro-batch."""


@dataclass(slots=True, kw_only=True)
class MicroBatchTransfers:
    """What one rank of a stage sends for one micro-batch."""

    tensor: tuple[Repeated, ...]
    """Tensor ranks, each kind of layer by its branches."""
    context: Repeated
    """Context ranks, keys and values of the layers that attend."""
    expert: Repeated
    """Expert ranks, tokens of the sparse layers."""
    pipeline: Repeated
    """Stages, activations and their gradients."""
    data: Repeated
    """Replicas that shard weights or gradients."""

    def each(self) -> Iterator[Repeated]:
        """All of it, axis by axis."""
        yield from self.tensor
        yield from (self.context, self.expert, self.pipeline, self.data)


def micro_batch_transfers(
    job: Job, degrees: Degrees, stage: Stage, load: StageLoad, layout: Layout
) -> MicroBatchTransfers:
    """What one rank of a stage sends for one micro-batch.

    Args:
        job: the job
        degrees: the layout's degrees
        stage: the stage
        load: its load
        layout: the layout's choices

    Returns:
        the collectives by axis; those of a group of one, or of no bytes, take no time

    Source:
        each axis's own file
    """
    attending, routing = (_passes(job, degrees, stage, (module,)) for module in ("core_attn", "moe"))
    attends = _layers(job, stage, lambda shape: MIXERS[shape.mixer].attends)
    sparse = _layers(job, stage, lambda shape: shape.is_sparse)
    return MicroBatchTransfers(
        tensor=_tensor(job, degrees, stage),
        context=Repeated(attends, context.layer_transfers(job, degrees, filled(layout.context_method), *attending)),
        expert=Repeated(sparse, expert.layer_transfers(job, degrees, *routing) if job.model.num_experts else ()),
        pipeline=Repeated(1, pipeline.micro_batch_transfers(job, degrees)),
        data=Repeated(1, data.micro_batch_transfers(job, degrees, load.held, attending[1])),
    )


def _tensor(job: Job, degrees: Degrees, stage: Stage) -> tuple[Repeated, ...]:
    forwards, backwards = _passes(job, degrees, stage, ())
    grouped = expert.is_grouped(degrees)
    each: list[Repeated] = []
    for count, shape in zip(stage.kind_counts, job.ledger.shapes, strict=True):
        branches = tensor.layer_branches(job.model, shape, grouped=grouped)
        each.append(Repeated(count, tensor.layer_transfers(job, degrees, forwards, backwards, branches)))
    return tuple(each)


def _layers(job: Job, stage: Stage, counts: Callable[[LayerShape], bool]) -> Amount:
    """Layers of a stage whose shape is of some sort."""
    layers: Amount = 0
    for count, shape in zip(stage.kind_counts, job.ledger.shapes, strict=True):
        layers = layers + (count if counts(shape) else 0)
    return layers


def _passes(job: Job, degrees: Degrees, stage: Stage, modules: tuple[RecomputeModule, ...]) -> tuple[Amount, Amount]:
    """Forward passes, those that recompute repeats counted, and backward passes of the mean layer of a stage."""
    trained = trained_layers(job, stage.kind_counts)
    backwards = trained / maximum(stage.layers, 1)
    repeated = repeated_forwards(job.recompute, trained, degrees.virtual_pipeline, modules)
    return 1 + repeated * backwards, backwards
