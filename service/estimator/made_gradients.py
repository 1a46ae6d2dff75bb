"""Which gradients appear while a step runs backward, where none has a buffer of its own?"""

from service.estimator.degrees import Degrees, divisors, padded_vocabulary
from service.estimator.job import Job
from service.estimator.ledger import Ops
from service.estimator.numeric import Amount, both, either, where
from service.estimator.stages import Stage


def lasting_gradient_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes of one gradient that stay from when its operation runs backward to the optimizer step.

    Those of later micro-batches are added to the first ones' and go; those that ranks share are reduced and go.

    Formula:
        bytes of a gradient where a step has one micro-batch and nothing is sharded; else, or with buffers, 0

    Args:
        job: the job
        degrees: the layout

    Returns:
        bytes of one parameter [byte]

    Source:
        torch AccumulateGrad (the first gradient of a parameter is taken as it is); live bytes counted by torch 2.13's
        profiler

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> lasting_gradient_bytes(sample_job(), sample_degrees())
    0.0
    """
    if job.stack.keeps_gradients:
        return 0.0
    return where(both(degrees.zero_stage == 0, degrees.accumulation == 1), job.state.gradient_bytes, 0.0)


def trained_numbers(ops: Ops, split: tuple[Amount, ...]) -> Amount:
    """Trained parameters of some operations on one rank.

    Formula:
        sum over trained weights of rows x columns x copies / divisor

    Args:
        ops: the operations
        split: divisor of each split [1]

    Returns:
        parameters [1]

    Source:
        the ledger

    >>> from service.estimator.samples import sample_job
    >>> trained_numbers(sample_job().ledger.head, (1,) * 9) == 128_256 * 4096 + 4096
    True
    """
    total: Amount = 0
    for op in ops:
        for weight in op.weights:
            if weight.trained:
                total = total + weight.parameters / split[weight.split]
    return total


def head_gradient_bytes(job: Job, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes of the head's gradients that are there when the last layer runs backward.

    A head that is the embedding too has its gradient wait for the embedding's, in every micro-batch.

    Formula:
        parameters after the last layer x bytes that last

    Args:
        job: the job
        degrees: the layout
        stage: the stage; 0 on every one but the last

    Returns:
        bytes of one rank [byte]

    Source:
        torch autograd (a gradient is handed on once all that it is a sum of is known)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> head_gradient_bytes(sample_job(), sample_degrees(), stage)
    0.0
    """
    if job.stack.keeps_gradients:
        return 0.0
    waits = either(job.model.tie_word_embeddings, degrees.accumulation == 1)
    made = trained_numbers(job.ledger.head, divisors(degrees, job.model, job.vocabulary_multiple))
    return where(both(both(stage.is_last, degrees.zero_stage == 0), waits), made * job.state.gradient_bytes, 0.0)


def head_product_bytes(job: Job, degrees: Degrees) -> Amount:
    """Bytes of the gradient of the head's matrix as its product makes it, on one rank of the last stage.

    Formula:
        V_padded / t x h elements; 0 with buffers for gradients, where the product adds to them

    Args:
        job: the job
        degrees: the layout

    Returns:
        bytes of one rank [byte]

    Source:
        torch autograd of torch.nn.functional.linear

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> head_product_bytes(sample_job(), sample_degrees())
    0.0
    """
    weights = [weight for op in job.ledger.head for weight in op.weights]
    if job.stack.keeps_gradients or not any(weight.role == "head" and weight.trained for weight in weights):
        return 0.0
    rows = padded_vocabulary(job.model, job.vocabulary_multiple, degrees.tensor) / degrees.tensor
    return where(degrees.zero_stage == 0, rows * job.model.embedding_width * job.precision.element_bytes, 0.0)
