"""How large are the logits and what the loss makes of them?"""

from service.estimator.degrees import Degrees, padded_vocabulary
from service.estimator.job import Job
from service.estimator.numeric import Amount


def logits_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes that the logits of one micro-batch and their losses hold on one rank of the last stage, at their peak.

    Formula:
        (1 + depths)  b s / c  V_padded / t  x  bytes a logit

    Args:
        job: the job; its stack says the bytes a logit
        degrees: the layout

    Returns:
        bytes of one micro-batch [byte]

    Source:
        the stack's row: 2-byte logits and 4-byte in-place softmax (Megatron-LM vocab-parallel cross entropy), or float
        logits, log-softmax and gradient (torch.nn.functional.cross_entropy)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> logits_bytes(sample_job(), sample_degrees())
    6304038912.0
    """
    vocabulary = padded_vocabulary(job.model, job.vocabulary_multiple, degrees.tensor) / degrees.tensor
    tokens = job.recipe.sequence_length * degrees.micro_batch / degrees.context
    losses = 1 + job.ledger.depths
    return losses * tokens * vocabulary * job.stack.logit_bytes
