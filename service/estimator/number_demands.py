"""Can numbers be kept in the formats that are asked for: weights, master copy, moments?"""

from service.estimator.job import Job
from service.estimator.optimizers import MOMENT_BYTES
from service.estimator.rules import Demand
from service.estimator.state import DTYPE_BYTES
from service.estimator.training import trains_everything


def _keeps_fp8_weights(job: Job) -> bool:
    """Whether a 16-bit weight with an fp8 copy beside it can be replaced by that copy."""
    has_copies = job.precision.matrix_format == "fp8" and job.precision.copy_bytes > 0
    return has_copies and job.implementation.uses_transformer_engine


def _untrained(job: Job) -> str:
    """What is not trained, in words."""
    if job.method.name != "full":
        return f"method {job.method.name} trains adapters beside frozen weights"
    layers = (f"the first {job.method.frozen_layers} layers",) if job.method.frozen_layers else ()
    return f"not all weights are trained: {' and '.join((*job.method.frozen, *layers))} frozen"


def _trained_mends(job: Job) -> str:
    if job.method.name != "full":
        return "use method full"
    given = {"frozen": job.method.frozen, "frozen_layers": job.method.frozen_layers}
    return f"leave {' and '.join(name for name, value in given.items() if value)} out of method"


def _moments_can_be(job: Job) -> list[str]:
    """Formats that moments may have: the precision recipe's own, and those that the stack lets choose."""
    own = [name for name, width in MOMENT_BYTES.items() if width == job.precision.moment_bytes]
    return [name for name in MOMENT_BYTES if name in (*own, *job.stack.moment_dtypes)]


def _masters_can_be(job: Job) -> list[str]:
    own = [name for name, width in DTYPE_BYTES.items() if width == job.precision.master_bytes]
    return [name for name in DTYPE_BYTES if name in (*own, *job.stack.master_dtypes)]


def _keeps_master(job: Job) -> bool:
    return job.precision.is_mixed and job.stack.mixed_weights == "compute"


DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "fp8_weights_replace_copies",
        "recipe.fp8_weights",
        lambda job, _: not job.recipe.fp8_weights or _keeps_fp8_weights(job),
        lambda job, _: (
            f"fp8_weights leaves Transformer Engine's fp8 copies as the only weights; here {job.software.name} with "
            f"{job.software.implementation} operations trains in {job.recipe.precision}",
            "use megatron-core with transformer-engine and one of fp8-tensorwise, fp8-blockwise and mxfp8, or leave "
            "fp8_weights out",
        ),
    ),
    Demand(
        "fp8_weights_are_all_trained",
        "recipe.fp8_weights",
        lambda job, _: not job.recipe.fp8_weights or trains_everything(job.method),
        lambda job, _: (
            f"fp8_weights keeps every weight in fp8 and trains it, and here {_untrained(job)}",
            f"{_trained_mends(job)}, or leave fp8_weights out",
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
        "stack_keeps_the_master_copy_so",
        "recipe.master_dtype",
        lambda job, _: not _keeps_master(job) or job.recipe.master_dtype in (None, *_masters_can_be(job)),
        lambda job, _: (
            f"{job.software.name} in {job.recipe.precision} keeps no master copy in {job.recipe.master_dtype}",
            f"use {' or '.join(_masters_can_be(job))}, or leave master_dtype out",
        ),
    ),
    Demand(
        "stack_keeps_the_moments_so",
        "recipe.moment_dtype",
        lambda job, _: (
            job.optimizer.moment_bytes is not None or job.recipe.moment_dtype in (None, *_moments_can_be(job))
        ),
        lambda job, _: (
            f"{job.software.name} in {job.recipe.precision} keeps no moments in {job.recipe.moment_dtype}",
            f"use {' or '.join(_moments_can_be(job))}, or leave moment_dtype out",
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
