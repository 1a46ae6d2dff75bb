"""Which bytes of parameters and optimizer live on one rank, and how does the data group share them?"""

from dataclasses import dataclass

from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.load import StageLoad
from service.estimator.numeric import Amount, is_nothing, maximum
from service.estimator.optimizers import moment_bytes
from service.estimator.parallelism.data import GRADIENTS, OPTIMIZER_STATES, WEIGHTS, expert_shards, shards
from service.estimator.quantization import quantized_bytes
from service.estimator.software import version_of
from service.estimator.stages import RankParameters
from service.estimator.versions import at_least

WHOLE_MOMENTS = 2
"""Moments of a matrix of the vocabulary where Muon leaves it to AdamW. Source: the optimizer's row."""

AVERAGE_BYTES = 4.0
"""Bytes of one number of a moving average of the weights. Source: torch.optim.swa_utils; Megatron-LM keeps fp32."""

MOST_ROOT_BYTES = 4.0
"""Bytes of the root of one number of the second moment at most, in fp32. Source: torch.optim._multi_tensor_adamw."""


def sharded_bytes(dense: Amount, expert: Amount, degrees: Degrees, bytes_each: float, kind: int) -> Amount:
    """Bytes of one rank for some numbers, spread over the data group where ZeRO reaches their kind.

    Formula:
        (N_dense / z + N_expert / z_expert) b

    Args:
        dense: numbers outside the routed experts before sharding, N_dense [1]
        expert: numbers of the routed experts before sharding, N_expert [1]
        degrees: the layout
        bytes_each: bytes of one number, b [byte]
        kind: OPTIMIZER_STATES, GRADIENTS or WEIGHTS [1]

    Returns:
        bytes of one rank [byte]

    Source:
        Rajbhandari et al. 2020, arXiv:1910.02054, figure 1

    >>> from service.estimator.samples import sample_degrees
    >>> sharded_bytes(1000, 0, sample_degrees(data=4, zero_stage=1), 12, OPTIMIZER_STATES)
    3000.0
    """
    if not bytes_each:
        return 0.0
    spread = 0.0 if is_nothing(dense) else dense * bytes_each / shards(degrees, kind)
    return spread if is_nothing(expert) else spread + expert * bytes_each / expert_shards(degrees, kind)


@dataclass(slots=True)
class Sharded:
    """The operands of one line that the data group may shard."""

    dense: Amount
    """Numbers outside the routed experts, before sharding."""
    expert: Amount
    """Numbers of the routed experts, before sharding."""
    each_bytes: float
    """Bytes of one number."""
    kind: int
    """OPTIMIZER_STATES, GRADIENTS or WEIGHTS."""


def sharded_lines(job: Job, load: StageLoad) -> dict[str, Sharded]:
    """The lines of `StageBytes` that the data group may shard, with what each is made of.

    Args:
        job: the job
        load: load of the rank

    Returns:
        the operands of `sharded_bytes` by line
    """
    held, updated, state = load.held, load.updated, job.state
    moment = moment_bytes(job.optimizer, job.precision, job.recipe.moment_dtype)
    trained, renewed = (held.dense_trained, held.expert_trained), (updated.dense_trained, updated.expert_trained)
    products = (held.dense_products, held.expert_products)
    quantized = job.method.name == "qlora"
    whole = _less(trained, products) if job.recipe.fp8_weights else trained
    frozen = _less((held.dense + held.dense_copied, held.expert), trained)
    narrow = narrow_fraction(job, held)
    states = (updated.dense_states, updated.expert_states)
    moments = (updated.dense_states * (1 - narrow), updated.expert_states) if follows_weights(job) else states
    trained, whole = ((numbers[0] * (1 - narrow), numbers[1]) for numbers in (trained, whole))
    return {
        "weights": Sharded(*whole, state.weight_bytes, WEIGHTS),
        "frozen_weights": Sharded(*(_less(frozen, products) if quantized else frozen), state.frozen_bytes, WEIGHTS),
        "quantized_weights": Sharded(*products, quantized_bytes(job.method), WEIGHTS),
        "weight_copies": Sharded(*products, state.copy_bytes, WEIGHTS),
        "gradients": Sharded(*trained, state.gradient_bytes, GRADIENTS),
        "half_gradients": Sharded(*trained, state.half_gradient_bytes, GRADIENTS),
        "master_weights": Sharded(*renewed, state.master_bytes, OPTIMIZER_STATES),
        "optimizer_states": Sharded(*moments, moment, OPTIMIZER_STATES),
        "optimizer_scales": Sharded(*states, job.optimizer.scale_bytes, OPTIMIZER_STATES),
        "moving_average": Sharded(*renewed, AVERAGE_BYTES if job.recipe.ema else 0.0, OPTIMIZER_STATES),
        "step_gradients": Sharded(*renewed, state.step_bytes, OPTIMIZER_STATES),
        "update_buffers": Sharded(renewed[0] * (1 - narrow), renewed[1], update_bytes(job), OPTIMIZER_STATES),
    }


def follows_weights(job: Job) -> bool:
    """Whether moments have the format of the weight that they update, because nothing names another.

    Args:
        job: the job

    Returns:
        True unless the optimizer or the recipe fixes their format

    >>> from service.estimator.samples import sample_job
    >>> follows_weights(sample_job())
    True
    """
    return job.optimizer.moment_bytes is None and job.recipe.moment_dtype is None


def update_bytes(job: Job) -> float:
    """Bytes of temporaries for each updated parameter inside the optimizer step.

    Formula:
        none in one kernel; else the root of the second moment, and before torch 2.1 its sum with epsilon too, in fp32
        or the moment's narrower format; SGD updates in place

    Args:
        job: the job

    Returns:
        bytes of one parameter [byte]

    Source:
        torch.optim._multi_tensor_adamw (denominators are made in place since torch 2.1), _multi_tensor_sgd

    >>> from service.estimator.samples import sample_job
    >>> update_bytes(sample_job())
    0.0
    """
    if job.software.fused_update or job.recipe.optimizer == "sgd-momentum":
        return 0.0
    each = min(MOST_ROOT_BYTES, moment_bytes(job.optimizer, job.precision, job.recipe.moment_dtype))
    return each if at_least(version_of(job.software, "torch"), "2.1") else 2 * each


def narrow_fraction(job: Job, held: RankParameters) -> Amount:
    """Share of trained bytes that parts trained whole beside adapters spare, because they are in the compute format.

    Formula:
        copied / trained x (1 - compute-format bytes / bytes of trained weights)

    Args:
        job: the job
        held: parameters of the rank

    Returns:
        share of the bytes [1]

    Source:
        huggingface/peft modules_to_save (a copy of the module, in the base model's format)

    >>> from service.estimator.samples import sample_job, sample_load
    >>> narrow_fraction(sample_job(), sample_load().held)
    0.0
    """
    return held.dense_copied / maximum(held.dense_trained, 1) * (1 - job.state.copied_fraction)


def _less(numbers: tuple[Amount, Amount], others: tuple[Amount, Amount]) -> tuple[Amount, Amount]:
    """Numbers of the dense part and of the experts, some of each left out."""
    return numbers[0] - others[0], numbers[1] - others[1]


def undivided_share(job: Job, degrees: Degrees, load: StageLoad) -> Amount:
    """Numbers that the fullest rank updates beyond its even share, where whole matrices are dealt out to ranks.

    Formula:
        V (1 - 1 / z), V the stage's largest matrix, that of the vocabulary; 0 where each matrix is cut evenly

    Args:
        job: the job
        degrees: the layout
        load: load of the rank

    Returns:
        numbers of one rank [1]

    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/optimizer/layer_wise_optimizer.py (whole matrices, the largest ones last)

    >>> from service.estimator.samples import sample_degrees, sample_job, sample_load
    >>> undivided_share(sample_job(), sample_degrees(data=8, zero_stage=1), sample_load())
    0.0
    """
    if not (job.stack.deals_whole_matrices and job.optimizer.needs_whole_matrices):
        return 0.0
    return load.largest_table * (1 - 1 / shards(degrees, OPTIMIZER_STATES))
