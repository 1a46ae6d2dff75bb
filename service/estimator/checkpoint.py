"""How large is a checkpoint on disk?"""

from service.estimator.job import Job
from service.estimator.optimizers import moment_bytes, state_numbers
from service.estimator.sharded import AVERAGE_BYTES, follows_weights


def checkpoint_bytes(job: Job) -> float:
    """Bytes on disk of one checkpoint from which training can go on, of the whole job.

    Formula:
        sum over trained weights of weight + master copy + optimizer numbers x bytes, tied weights once
        (frozen weights are not written: they are those of the base model; a moving average is)

    Args:
        job: the job

    Returns:
        bytes of the whole job [byte]

    Source:
        Megatron-LM dist_checkpointing and torch.distributed.checkpoint (each tensor once, in the format it is held in);
        huggingface/peft save_pretrained (adapters alone)

    >>> from service.estimator.samples import sample_job
    >>> checkpoint_bytes(sample_job()) == 14 * 8_030_261_248
    True
    """
    state = job.state
    moment = moment_bytes(job.optimizer, job.precision, job.recipe.moment_dtype)
    beside = state.master_bytes + (AVERAGE_BYTES if job.recipe.ema else 0.0)
    total = 0.0
    for times, ops in job.ledger.groups():
        for weight in (weight for op in ops for weight in op.weights if weight.trained and not weight.tied):
            is_copied = job.method.name != "full" and weight.role != "adapter"
            narrowed = state.copied_fraction if is_copied else 1.0
            each = moment * (narrowed if follows_weights(job) else 1.0) + job.optimizer.scale_bytes
            numbers = state_numbers(job.optimizer, weight)
            total += times * (weight.parameters * (state.weight_bytes * narrowed + beside) + numbers * each)
    return total
