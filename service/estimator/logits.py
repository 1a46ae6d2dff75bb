"""How large are the logits and what the loss makes of them?"""

from service.estimator.cross_entropy import CROSS_ENTROPIES
from service.estimator.degrees import Degrees, padded_vocabulary
from service.estimator.job import Job
from service.estimator.made_gradients import head_product_bytes
from service.estimator.numeric import Amount, both, maximum, where
from service.estimator.stream import stream_bytes

WHOLE_LOSSES = ("eager", "compiled")
"""Losses that torchtitan replaces by a parallel one where tensor ranks split the vocabulary.
Source: pytorch/torchtitan@9dec370 config_manager.py (enable_loss_parallel)."""


def rank_logits(job: Job, degrees: Degrees) -> Amount:
    """Logits of one micro-batch on one rank of the last stage.

    Formula:
        b s / c  V_padded / t

    Args:
        job: the job
        degrees: the layout

    Returns:
        logits [1]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.3

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> rank_logits(sample_job(), sample_degrees()) == 8192 * 128_256
    True
    """
    vocabulary = padded_vocabulary(job.model, job.vocabulary_multiple, degrees.tensor) / degrees.tensor
    tokens = job.recipe.sequence_length * degrees.micro_batch / degrees.context
    return tokens * vocabulary


def logits_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes that the logits of one micro-batch and their losses hold on one rank of the last stage, at their peak.

    That is inside the loss, or when the head runs backward: then the logits' gradient, and that of the stream before
    and after tensor ranks share it, and the gradient of the head's matrix where it has no buffer.

    Formula:
        max(logits x bytes a logit, logits x element + s b h / c (1 + 1 / t) elements + V h / t elements)
        + what each multi-token-prediction depth has kept of its own logits

    Args:
        job: the job; its cross entropy says the bytes a logit
        degrees: the layout

    Returns:
        bytes of one micro-batch [byte]

    Source:
        the row of the cross entropy; NVIDIA/Megatron-LM@23e00ed0 core/tensor_parallel/layers.py (backward of the head)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> logits_bytes(sample_job(), sample_degrees())
    6304038912.0
    """
    logits, element = rank_logits(job, degrees), job.precision.element_bytes
    stream = stream_bytes(job, degrees)
    shared = where(both(degrees.sequence_parallel == 1, degrees.tensor > 1), stream / degrees.tensor, 0.0)
    each: Amount = job.cross_entropy.logit_bytes(element)
    if job.stack.splits_loss and job.software.cross_entropy in WHOLE_LOSSES:
        each = where(degrees.tensor > 1, CROSS_ENTROPIES["loss-parallel"].logit_bytes(element), each)
    loss = maximum(logits * each, logits * element + stream + shared + head_product_bytes(job, degrees))
    return loss + job.ledger.depths * logits * job.cross_entropy.kept_bytes


def kept_logits_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes that the losses of one micro-batch keep until it runs backward, on one rank of the last stage.

    Formula:
        losses x logits x bytes that stay of each

    Args:
        job: the job; its cross entropy says the bytes
        degrees: the layout

    Returns:
        bytes of one micro-batch [byte]

    Source:
        the row of the cross entropy

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> kept_logits_bytes(sample_job(), sample_degrees()) == 4 * 8192 * 128_256
    True
    """
    return (1 + job.ledger.depths) * rank_logits(job, degrees) * job.cross_entropy.kept_bytes
