"""Seconds of the weight update, on the GPU or in host memory."""

from service.estimator.constants import streaming_bytes_per_s
from service.estimator.degrees import Degrees
from service.estimator.memory.states import sharded_bytes
from service.estimator.numeric import Amount, where
from service.estimator.parallelism.data import OPTIMIZER_STATES, WEIGHTS
from service.estimator.parallelism.stages import RankParameters
from service.estimator.software.optimizers import moment_bytes
from service.estimator.workload import Workload

HOST_LINK_FRACTION = 0.88
"""Share of the host link that copies reach: 55.4 of 63 GB/s to an H200 over PCIe 5.
Source: stas00/ml-engineering@744d01e network README, nvbandwidth, 2026-08."""

HOST_MEMORY_BYTES_PER_S = 77e9
"""Host memory bandwidth for one GPU: 16 channels of DDR5-4800, shared by 8 GPUs.
Source: NVIDIA DGX H100 data sheet, two Xeon 8480C."""


def _updated_bytes(workload: Workload, degrees: Degrees, updated: RankParameters) -> tuple[Amount, Amount]:
    """Bytes that an optimizer step reads and writes back, and those that it reads or writes once."""
    state = workload.state
    each = moment_bytes(workload.optimizer, workload.precision, workload.recipe.moment_dtype)
    states = sharded_bytes(updated.dense_states, updated.expert_states, degrees, each, OPTIMIZER_STATES)
    master = state.master_bytes or state.weight_bytes
    trained = (updated.dense_trained, updated.expert_trained)
    both_ways = states + sharded_bytes(*trained, degrees, master, OPTIMIZER_STATES)
    once = state.gradient_bytes + state.weight_bytes
    return both_ways, sharded_bytes(*trained, degrees, once, OPTIMIZER_STATES)


def optimizer_seconds(workload: Workload, degrees: Degrees, updated: RankParameters) -> Amount:
    """Seconds of the optimizer's update on one rank: it streams its shard through the GPU's memory.

    Formula:
        (2 (master + moments) + gradients + weights) bytes / W

    Args:
        updated: parameters that the rank updates, before sharding

    Returns:
        seconds of one step [s]

    Source:
        definition; StepConstants.memory_fraction

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> round(optimizer_seconds(sample_workload(), sample_degrees(), sample_rank_load().updated), 2)
    0.09
    """
    both_ways, once = _updated_bytes(workload, degrees, updated)
    return (2 * both_ways + once) / streaming_bytes_per_s(workload.gpu, workload.constants.memory_fraction)


def offloaded_seconds(workload: Workload, degrees: Degrees, updated: RankParameters) -> Amount:
    """Seconds of an optimizer's update in host memory: gradients go down, weights come up, the host updates.

    Formula:
        (gradients + weights) bytes / W_link + 2 (master + moments) bytes / W_host

    Args:
        updated: parameters that the rank updates, before sharding

    Returns:
        seconds of one step [s]

    Source:
        Ren et al. 2021, arXiv:2101.06840, section 4; HOST_LINK_FRACTION, HOST_MEMORY_BYTES_PER_S

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> round(offloaded_seconds(sample_workload(), sample_degrees(), sample_rank_load().updated), 3)
    3.372
    """
    both_ways, once = _updated_bytes(workload, degrees, updated)
    return once / (workload.gpu.host_bytes_per_s * HOST_LINK_FRACTION) + 2 * both_ways / HOST_MEMORY_BYTES_PER_S


def accumulation_seconds(workload: Workload, degrees: Degrees, held: RankParameters) -> Amount:
    """Seconds that one rank takes to add a micro-batch's gradients to those before it.

    Formula:
        N (2 e + 2 g) / W: written and read in the compute format, read and written in the accumulated one; none where
        the products of the weights' gradients add to them by themselves; where weights are sharded, the copies of
        Overlap.sharded_copy_bytes instead

    Args:
        workload: the workload, with e bytes an activation and g an accumulated gradient
        held: parameters of the rank, N of them trained

    Returns:
        seconds of one micro-batch [s]

    Source:
        torch AccumulateGrad; NVIDIA/Megatron-LM@83b1e42f gradient accumulation fusion

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> accumulation_seconds(sample_workload(), sample_degrees(), sample_rank_load().held)
    0.0
    """
    whole = 2 * (workload.precision.element_bytes + min(4.0, workload.state.gradient_bytes))
    each = where(
        degrees.zero_stage == WEIGHTS,
        workload.overlap.sharded_copy_bytes,
        0.0 if workload.software.gradient_fusion else whole,
    )
    trained = held.dense_trained + held.expert_trained
    return trained * each / streaming_bytes_per_s(workload.gpu, workload.constants.memory_fraction)
