"""Can numbers be kept in the formats that are asked for: weights, master copy, moments?"""

from service.estimator.job import Job
from service.estimator.rules import Demand
from service.estimator.training import trains_everything


def _keeps_fp8_weights(job: Job) -> bool:
    """Whether a 16-bit weight with an fp8 copy beside it can be replaced by that copy."""
    has_copies = job.precision.matrix_format == "fp8" and job.precision.copy_bytes > 0
    return has_copies and job.implementation.uses_transformer_engine and trains_everything(job.method)


def _keeps_master(job: Job) -> bool:
    return job.precision.is_mixed and job.stack.mixed_weights == "compute"


DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "fp8_weights_replace_copies",
        "recipe.fp8_weights",
        lambda job, _: not job.recipe.fp8_weights or _keeps_fp8_weights(job),
        lambda job, _: (
            f"fp8_weights leaves Transformer Engine's fp8 copies as the only weights, all of them trained; here "
            f"{job.software.name} trains in {job.recipe.precision} by method {job.method.name}",
            "use megatron-core, one of fp8-tensorwise, fp8-blockwise, mxfp8 and method full, or leave fp8_weights out",
        ),
    ),
    Demand(
        "master_copy_is_kept",
        "recipe.master_dtype",
        lambda job, _: job.recipe.master_dtype is None or _keeps_master(job),
        lambda job, _: (
            f"{job.software.name} in {job.recipe.precision} updates the weights themselves, so there is no master copy",
            "leave master_dtype out, or use a mixed precision with a stack that keeps a master copy",
        ),
    ),
    Demand(
        "optimizer_leaves_the_moments_format_open",
        "recipe.moment_dtype",
        lambda job, _: job.recipe.moment_dtype is None or job.optimizer.moment_bytes is None,
        lambda job, _: (
            f"{job.recipe.optimizer} keeps moments in a format of its own, not in {job.recipe.moment_dtype}",
            "leave moment_dtype out, or use another optimizer",
        ),
    ),
)
