"""What stands beside the model's own tensors on one rank: workspaces of libraries, buffers that are kept?"""

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.numeric import Amount, Condition, both, either, where
from service.estimator.software import version_of
from service.estimator.stream import WIDE_BYTES, sequence_stream_bytes, stream_bytes
from service.estimator.workspaces import GROUPED_STREAMS, torch_workspace_bytes, transformer_engine_workspace_bytes


def standing_bytes(job: Job, degrees: Degrees, *, has_head: Condition) -> Amount:
    """Bytes of workspaces and kept buffers of one rank of a stage.

    Formula:
        workspaces of torch's matrix products, where any runs, and of Transformer Engine's; four more of those with
        grouped experts
        + the gathered input of the head, b s h / c elements, where sequence parallelism is on
        + tokens of all ranks that share experts, where they are gathered
        + the scores of one layer, b s^2 a / t elements, where eager attention keeps a buffer of them

    Args:
        job: the job
        degrees: the layout
        has_head: whether the rank computes logits

    Returns:
        bytes of one rank [byte]

    Source:
        workspaces; NVIDIA/Megatron-LM@d98e8a64 core/tensor_parallel/layers.py (global memory buffer of gathered
        inputs), core/transformer/dot_product_attention.py (of scores)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> standing_bytes(sample_job(), sample_degrees(), has_head=True) / 2**20
    96.0
    """
    software = job.software
    torch_bytes = torch_workspace_bytes(job.gpu, version_of(software, "torch"), deterministic=software.deterministic)
    splits = both(degrees.sequence_parallel == 1, degrees.tensor > 1)
    gathered = where(both(has_head, splits), stream_bytes(job, degrees), 0.0)
    if job.stack.keeps_gather_buffers:
        gathered = where(degrees.tensor > 1, job.stack.keeps_gather_buffers * stream_bytes(job, degrees), 0.0)
    if not job.implementation.uses_transformer_engine:
        return _dispatch_bytes(job, degrees) + torch_bytes + gathered + _score_buffer_bytes(job, degrees)
    grouped = software.grouped_experts and job.model.num_experts
    runs_torch = either(has_head, job.model.num_experts > 0)
    engine = transformer_engine_workspace_bytes(job.gpu) * (1 + GROUPED_STREAMS if grouped else 1)
    return _dispatch_bytes(job, degrees) + engine + where(runs_torch, torch_bytes, 0.0) + gathered


def _dispatch_bytes(job: Job, degrees: Degrees) -> Amount:
    """A buffer of the tokens of all ranks that share experts, where they are gathered instead of sent."""
    if job.software.dispatcher != "allgather" or not job.model.num_experts:
        return 0.0
    ranks = degrees.expert * degrees.expert_tensor
    return where(ranks > 1, sequence_stream_bytes(job, degrees) * ranks, 0.0)


def _score_buffer_bytes(job: Job, degrees: Degrees) -> Amount:
    if not job.implementation.keeps_score_buffer or job.recipe.attention != "eager":
        return 0.0
    pairs = job.recipe.sequence_length**2 * degrees.micro_batch / degrees.context
    return pairs * job.model.num_attention_heads / degrees.tensor * job.precision.element_bytes


def mask_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes of the mask of all pairs of tokens of one micro-batch, where the data loader or eager attention has one.

    Formula:
        b s^2 / c, and as much for each byte of the stream's format in eager attention of transformers

    Args:
        job: the job
        degrees: the layout

    Returns:
        bytes of one rank [byte]

    Source:
        NVIDIA/Megatron-LM@d98e8a64 pretrain_gpt.py (create-attention-mask-in-dataloader, one byte a pair)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> mask_bytes(sample_job(), sample_degrees())
    0.0
    """
    is_added = job.implementation.runs_transformers and job.kernel == "eager"
    is_wide = job.implementation.casts_each_input and job.precision.is_mixed
    added = (WIDE_BYTES if is_wide else job.precision.element_bytes) if is_added else 0.0
    each = added + (1.0 if job.software.attention_mask else 0.0)
    return each * job.recipe.sequence_length**2 * degrees.micro_batch / degrees.context if each else 0.0
