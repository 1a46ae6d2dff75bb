"""What does it take to turn numbers into fp8 or fp4?"""

from service.estimator.device_calibration import streaming_bytes_per_s
from service.estimator.job import Job
from service.estimator.matrix_rates import format_rate, generation_rates
from service.estimator.numeric import Amount
from service.estimator.stages import RankParameters

CAST_BYTES = 4.0
"""Traffic of turning one number into fp8 with one scale a tensor: read in two bytes, written row- and column-wise.
Source: NVIDIA/TransformerEngine@v2.11 common/transpose/cast_transpose.cu."""


def cast_bytes(job: Job) -> float:
    """Memory traffic of turning one number into the format of the products.

    Formula:
        one scale a tensor: CAST_BYTES; one a block: what benchmarks of such products show, and no less

    Args:
        job: the job

    Returns:
        bytes of one number [byte]

    Source:
        CAST_BYTES; matrix_rates.MATRIX_RATES (quantise_bytes)

    >>> from service.estimator.samples import sample_job
    >>> cast_bytes(sample_job())
    4.0
    """
    if job.recipe.precision == "fp8-tensorwise":
        return CAST_BYTES
    measured = format_rate(generation_rates(job.gpu), job.precision.matrix_format).quantise_bytes
    return max(CAST_BYTES, measured)


def weight_cast_seconds(job: Job, held: RankParameters) -> Amount:
    """Seconds that one rank takes each step to turn its weights into the format of the products.

    Formula:
        N c / W; none where products are not narrow, or weights are kept in fp8 with one scale a tensor

    Args:
        job: the job, with c = cast_bytes
        held: parameters of the rank, N of them trained

    Returns:
        seconds of one step [s]

    Source:
        Transformer Engine user guide, FP8 primer (is_first_microbatch); Megatron-LM fp8-param-gather (MXFP8 is made of
        gathered bf16 weights)

    >>> from service.estimator.samples import sample_job, sample_load
    >>> weight_cast_seconds(sample_job(), sample_load().held)
    0.0
    """
    is_narrow = job.precision.matrix_format in ("fp8", "fp4")
    stands = job.recipe.fp8_weights and job.recipe.precision == "fp8-tensorwise"
    if not is_narrow or stands:
        return 0.0
    numbers = held.dense_trained + held.expert_trained
    return numbers * cast_bytes(job) / streaming_bytes_per_s(job.gpu, job.constants.memory_fraction)
