"""Which constants decide how long a step takes, beside what data sheets and benchmarks of single kernels say?

They are what a step shows and a benchmark does not: clocks that sink, kernels that start cold, transfers that hide.
`service.calibration.step_fit` holds the bounds and the prior of each, and fits them on published steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from service.estimator.gpu import Gpu
from service.estimator.names import AttentionName, ImplementationName, StackName
from service.estimator.workspaces import generation


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    """What is fitted on published steps."""

    product_scales: Mapping[str, float]
    """Rate of matrix products inside a step over that of a short benchmark, by generation of GPUs."""
    attention_scales: Mapping[AttentionName, float]
    """Rate of a fused attention kernel inside a step over that of a short benchmark, by kernel; where it is not fitted,
    as NEWEST_KERNEL's."""
    eager_attention_fraction: float
    """Share of the dense peak that the two products of eager attention reach."""
    memory_fraction: float
    """Share of the memory bandwidth that streaming kernels reach."""
    fill_numbers: float
    """Numbers that a tile could have summed while its kernel fills and drains."""
    misaligned_fraction: float
    """Share of their rate that products keep where a matrix has a side that is no multiple of 64."""
    misaligned_head_fraction: float
    """Share of their rate that the products of eager attention keep where heads are no multiple of 8 wide."""
    grouped_fraction: float
    """Share of their rate that the products of several experts keep in one grouped kernel."""
    network_scale: float
    """Rate of transfers between domains inside a step over that of a benchmark."""
    contention_fraction: float
    """Share of the shorter of two overlapped streams, compute and sharded weights, that is lost to contention."""
    exposed_gradient_fraction: float
    """Share of the once-a-step gradient traffic that no backward pass hides: the last bucket, the weights' gather."""
    straggler_fraction: float
    """Share of a step that each doubling of the nodes adds: the slowest of them is waited for."""
    pressure_fraction: float
    """Share of a step that allocator retries add on a device that is full."""
    layer_host_seconds: float
    """Time of the host to launch a dense layer's kernels for one micro-batch, forward and backward."""
    sparse_layer_host_seconds: float
    """What a layer of experts takes beside: routing, permuting and waiting for counts of tokens."""
    stack_scales: Mapping[tuple[StackName, ImplementationName], float]
    """Seconds of a step over what all else says, by stack and implementation; one where absent."""


STEP_CONSTANTS = StepConstants(
    product_scales={"Ampere": 1.006, "Hopper": 0.9135},
    attention_scales={"flash-1": 1.012, "flash-2": 0.7072, "cudnn": 0.9825},
    eager_attention_fraction=0.3515,
    memory_fraction=0.7919,
    fill_numbers=337.0,
    misaligned_fraction=0.8534,
    misaligned_head_fraction=0.09054,
    grouped_fraction=0.4653,
    network_scale=0.6004,
    contention_fraction=0.3423,
    exposed_gradient_fraction=0.2851,
    straggler_fraction=0.006379,
    pressure_fraction=0.03006,
    layer_host_seconds=0.001,
    sparse_layer_host_seconds=0.01676,
    stack_scales={
        ("megatron-core", "transformer-engine"): 0.9256,
        ("megatron-core", "local"): 0.945,
        ("deepspeed", "local"): 1.135,
        ("deepspeed", "eager"): 1.036,
        ("fsdp1", "eager"): 1.042,
        ("nanotron", "eager"): 0.9428,
        ("torchtitan", "compiled"): 0.9883,
        ("torchtitan", "eager"): 1.044,
    },
)
"""The shipped values. Source: service.calibration.step_fit over published/throughput.csv: dense models on Ampere and
Hopper; experts on every generation, as few steps of theirs were published; layer_host_seconds is an assumption."""


NEWEST_KERNEL: AttentionName = "cudnn"
"""Kernel whose scale stands for newer ones that no published step names.
Source: an assumption: FlashAttention-3 and -4 share its design."""

NEWEST_FITTED = "Hopper"
"""Generation whose scale stands for those that nothing is fitted on.
Source: an assumption: from it on, boards compute at their power limit, below the clock of a short benchmark."""


def product_scale(constants: StepConstants, gpu: Gpu) -> float:
    """Rate of a GPU's matrix products inside a step over that of a short benchmark.

    Formula:
        its generation's; that of NEWEST_FITTED where nothing is fitted on its own

    Args:
        constants: the constants
        gpu: the GPU

    Returns:
        the scale [1]

    Source:
        StepConstants.product_scales

    >>> from dataclasses import replace
    >>> from service.estimator.samples import H100
    >>> constants = replace(STEP_CONSTANTS, product_scales={"Ampere": 1.0, "Hopper": 0.9})
    >>> product_scale(constants, H100), product_scale(constants, replace(H100, architecture="Blackwell"))
    (0.9, 0.9)
    """
    return constants.product_scales.get(generation(gpu), constants.product_scales[NEWEST_FITTED])
