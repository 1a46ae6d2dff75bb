"""What lives only while a layer runs backward: gradients of its inputs and results, beside what it kept?"""

from service.estimator.degrees import Degrees, divisors
from service.estimator.job import Job
from service.estimator.ledger import Ops, Saved
from service.estimator.made_gradients import head_gradient_bytes, lasting_gradient_bytes, trained_numbers
from service.estimator.numeric import Amount, maximum, where
from service.estimator.recompute import is_dropped, kept_bytes, largest_kind_bytes
from service.estimator.stages import Stage
from service.estimator.stream import handed_stream_bytes


def layer_buffer_bytes(job: Job, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes that the backward pass of one layer holds beside all kept activations, at its worst, on one rank.

    The layer's operations run backward one by one; each needs the gradient of the layer's result and tensors of its
    own, and the tensors that later operations had kept are free by then. Where gradients have no buffers, those of
    operations that have run backward are there too, and the head's; what the head kept is gone.

    Formula:
        max over operations j of (gradient of the stream + passing_j - sum over later operations of what they kept
        + gradients made so far)

    Args:
        job: the job
        degrees: the layout
        stage: the stage

    Returns:
        bytes of the layer that needs most [byte]

    Source:
        NVIDIA/TransformerEngine@v2.11 pytorch/module (order of the backward pass); the peak of a gated MLP, 4 s f / t
        beside the gradient, is that of published Megatron-Core runs (MooreThreads/SimuMax@4dcaae5)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> layer_buffer_bytes(sample_job(), sample_degrees(), stage) == 2 * 8192 * (4096 + 2 * 14336)
    True
    """
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    gradient, each_bytes = handed_stream_bytes(job, degrees), lasting_gradient_bytes(job, degrees)
    worst = [_worst(job, ops, split, scale, each_bytes) for ops in job.ledger.kinds]
    ends = head_gradient_bytes(job, degrees, stage) - _left_by_head(job, stage, split) * scale
    return maximum(0.0, ends + largest_kind_bytes(stage, [gradient + one for one in worst]))


def _left_by_head(job: Job, stage: Stage, split: tuple[Amount, ...]) -> Amount:
    """Bytes of one sequence that the head kept and that are gone when the last layer runs backward."""
    if job.stack.keeps_gradients:
        return 0.0
    return where(stage.is_last, kept_bytes(job.ledger.head, job.recompute, split), 0.0)


def _worst(job: Job, ops: Ops, split: tuple[Amount, ...], scale: Amount, each_bytes: Amount) -> Amount:
    """Most bytes beside what is kept, over the operations from last to first, with gradients of so many bytes each."""
    most: Amount = 0.0
    freed: Amount = 0.0
    made: Amount = 0.0
    for op in reversed(ops):
        made = made + trained_numbers((op,), split) * each_bytes
        if op.passing and op.gradients:
            most = maximum(most, (_bytes(op.passing, split) - freed) * scale + made)
        freed = freed + _bytes(tuple(saved for saved in op.saved if not is_dropped(saved, job.recompute)), split)
    return most


def _bytes(tensors: tuple[Saved, ...], split: tuple[Amount, ...]) -> Amount:
    total: Amount = 0.0
    for tensor in tensors:
        total = total + tensor.bytes / split[tensor.split]
    return total
