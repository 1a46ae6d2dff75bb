"""Constants of steps and runs, and the calibration of one device, which replaces its share of them.

The constants of a step cover what a short benchmark does not show: falling clocks, cold caches, overlapping transfers.
`service.calibration.steps` fits them to published steps, within bounds and priors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import ceil, exp, log, sqrt
from typing import Literal

from service.estimator.answer import INSIDE_FRACTION
from service.estimator.question import AttentionName, Gpu, ImplementationName, MeasuredStep, StackName
from service.estimator.software.precision import Format
from service.estimator.software.versions import generation

FAILURES_PER_GPU_HOUR = 419 / (54 * 24 * 16_384)
"""Interruptions of a job for each GPU-hour: 419 unexpected ones in 54 days on 16,384 H100, one for 50,677 GPU-hours.
Source: Llama 3, arXiv:2407.21783, section 3.3.4."""

PREEMPTIONS_PER_INSTANCE_HOUR = 2.2e-4
"""Preemptions of one spot machine an hour: 15 % of machines in a month, -ln(1 - 0.15) / 730 h. Rates differ by
machine, place and month, from below 5 % to far above 20 % in a month.
Source: middle of the 10 to 20 % of the AWS Spot Instance Advisor for p5 (H100) of 2025-05-01, as reported by
thundercompute.com, GPU spot instance interruption rates."""

CHECKPOINT_SECONDS = 30.0
"""Time that one checkpoint stops training. Source: a round figure for asynchronous checkpoints."""

RESTART_SECONDS = 600.0
"""Time from an interruption to the first new step. Source: a round figure; Llama 3's > 90 % goodput implies less."""

HOST_POWER_FRACTION = (10_200 - 8 * 700) / (8 * 700)
"""Rated power of hosts, NVSwitches, network and fans over that of the GPU boards: a whole DGX H100 has 10.2 kW.
Source: NVIDIA DGX H100 data sheet."""

BUSY_POWER_FRACTION = 0.76
"""Power of a node that trains over its rated power; the highest seen of an H100 node is 8.4 of 10.2 kW, 0.82.
Source: Newkirk et al. 2025, arXiv:2506.14551, abstract; Latif et al. 2024, arXiv:2412.08602, abstract."""

IDLE_POWER_FRACTION = 0.2
"""Power of a node that waits over its rated power. Source: an assumption; a round figure."""

POWER_USAGE_EFFECTIVENESS = 1.1
"""Data-centre overhead. Source: LLaMA, arXiv:2302.13971, table 15; Patterson et al. 2021, arXiv:2104.10350, table 4."""


MEMORY_FRACTION = 0.87
"""Share of memory bandwidth that streaming kernels reach: best read rates of eight GPUs lie at 0.84-0.94.
Source: ai-dynamo/aiconfigurator@095f58a memory kernels (A100 0.87, H100 0.87, H200 0.89, B200 0.88)."""

LAUNCH_SECONDS = 5e-6
"""Fixed cost of one kernel: intercepts of 4.7 (A100) and 6 (H100) microseconds over 38,136 measured matrix products.
Source: microsoft/vidur profiling data mlp.csv, fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    """Constants fitted to published steps."""

    product_scales: Mapping[str, float]
    """Rate of matrix products inside a step over that of a short benchmark, by generation of GPUs."""
    attention_scales: Mapping[AttentionName, float]
    """Rate of a fused attention kernel inside a step over that of a short benchmark, by kernel; kernels without a fit
    use that of NEWEST_KERNEL."""
    eager_attention_fraction: float
    """Share of the dense peak that the two products of eager attention reach."""
    memory_fraction: float
    """Share of the memory bandwidth that streaming kernels reach."""
    fill_numbers: float
    """Cost of filling and draining a kernel, in numbers that a tile could have summed in that time."""
    misaligned_fraction: float
    """Share of its rate that a product keeps where a side of the matrix is no multiple of 64."""
    misaligned_head_fraction: float
    """Share of its rate that a product of eager attention keeps where the head width is no multiple of 8."""
    grouped_fraction: float
    """Share of its rate that a product keeps inside a grouped kernel of several experts with many tokens each."""
    network_scale: float
    """Rate of transfers between domains inside a step over that of a benchmark."""
    contention_fraction: float
    """Share of the shorter of two overlapped streams, compute and sharded weights or tokens, that is lost to
    contention."""
    user_buffer_fraction: float
    """Share of tensor-parallel communication that Transformer Engine's user buffers hide beside products."""
    exposed_gradient_fraction: float
    """Share of a step's gradient traffic that no backward pass hides: the last bucket, the all-gather of weights."""
    straggler_fraction: float
    """Share of a step that each doubling of the nodes adds, because all wait for the slowest one."""
    pressure_fraction: float
    """Share of a step that allocator retries add on a device that is full."""
    layer_host_seconds: float
    """Time of the host to launch a dense layer's kernels for one micro-batch, forward and backward."""
    host_launch_seconds: float
    """Time of the host to launch one kernel of a layer of experts from Python."""
    stack_scales: Mapping[tuple[StackName, ImplementationName], float]
    """Measured seconds of a step over those predicted without it, by stack and implementation; 1 where absent."""


STEP_CONSTANTS = StepConstants(
    product_scales={"Ampere": 1.0, "Hopper": 0.9083, "Blackwell": 0.8254},
    attention_scales={"flash-1": 1.008, "flash-2": 0.808, "cudnn": 1.014},
    eager_attention_fraction=0.3521,
    memory_fraction=0.7759,
    fill_numbers=316.9,
    misaligned_fraction=0.8547,
    misaligned_head_fraction=0.09048,
    grouped_fraction=0.8168,
    network_scale=0.6757,
    contention_fraction=0.3616,
    user_buffer_fraction=0.6985,
    exposed_gradient_fraction=0.3142,
    straggler_fraction=0.006666,
    pressure_fraction=0.02892,
    layer_host_seconds=0.001,
    host_launch_seconds=5.007e-05,
    stack_scales={
        ("megatron-core", "transformer-engine"): 1.011,
        ("megatron-core", "local"): 0.942,
        ("deepspeed", "local"): 1.133,
        ("deepspeed", "eager"): 1.032,
        ("fsdp1", "eager"): 1.038,
        ("nanotron", "eager"): 0.9593,
        ("torchtitan", "compiled"): 0.9836,
        ("torchtitan", "eager"): 0.987,
    },
)
"""The shipped values. Source: service.calibration.steps over published/throughput.csv: dense models on Ampere and
Hopper, and on Blackwell for the rate of its products; models with experts on every generation, because few of their
steps are published; layer_host_seconds is an assumption."""


NEWEST_KERNEL: AttentionName = "cudnn"
"""Kernel whose scale is used for newer kernels without a published step.
Source: an assumption: FlashAttention-3 and -4 share its design."""

NEWEST_FITTED = "Hopper"
"""Generation whose scale is used for generations without a fit.
Source: an assumption: since Hopper, boards compute at their power limit, below the clock of a short benchmark."""


def product_scale(constants: StepConstants, gpu: Gpu) -> float:
    """Rate of a GPU's matrix products inside a step over that of a short benchmark.

    Formula: its generation's; that of NEWEST_FITTED where nothing is fitted on its own
    Returns: the scale [1]
    Source: StepConstants.product_scales

    >>> from dataclasses import replace
    >>> from service.estimator.samples import H100
    >>> constants = replace(STEP_CONSTANTS, product_scales={"Ampere": 1.0, "Hopper": 0.9})
    >>> product_scale(constants, H100), product_scale(constants, replace(H100, architecture="Rubin"))
    (0.9, 0.9)
    """
    return constants.product_scales.get(generation(gpu), constants.product_scales[NEWEST_FITTED])


UNWRITTEN = {"unwritten": True}
"""Metadata of a field that is left out of answers; versions.calibration names its value."""

CurveName = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
"""Collectives for which a link has a curve; a send uses that of all-to-all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCalibration:
    """What matrix products of one number format reached."""

    format: Format
    """Format of the operands."""
    flop_per_s: float
    """Rate of full waves of full tiles in short bursts."""
    bytes_per_s: float | None = None
    """Memory traffic in short bursts; null: as much as streaming kernels reach."""
    launch_seconds: float = LAUNCH_SECONDS
    """Fixed cost of one product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCalibration:
    """What one fused attention kernel reached."""

    kernel: AttentionName
    """The kernel."""
    forward_fraction: float | None = None
    """Share of dense peak over endless keys and tiles, heads of 128, forward; null where it was not measured."""
    backward_fraction: float | None = None
    """The same, backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCalibration:
    """Deviation of one collective inside a domain from its link's curve."""

    collective: CurveName
    """The collective."""
    fixed_fraction: float = 1.0
    """Fixed cost, hops and root term, over those of the curve."""
    link_fraction: float = 1.0
    """Bytes a second of large messages over those of the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBytes:
    """Bytes that were measured, with their spread."""

    low: float
    """Lower end."""
    value: float
    """Middle."""
    high: float
    """Upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCalibration:
    """One whole step, beside what the other constants predict of it: what it tells holds for its stack."""

    stack: StackName
    """Training software that ran it."""
    implementation: ImplementationName | None
    """Implementation that it ran."""
    step: MeasuredStep
    """Its seconds, predicted and measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalibration:
    """Measured constants of one device. Formulas use the data sheet in place of an absent one."""

    id: str
    """Id that answers state as versions.calibration."""
    matrix: tuple[MatrixCalibration, ...] = ()
    """Matrix products by number format."""
    attention: tuple[AttentionCalibration, ...] = ()
    """Attention by kernel."""
    links: tuple[LinkCalibration, ...] = ()
    """Collectives inside a domain."""
    memory_bytes_per_s: float | None = None
    """Memory traffic that streaming kernels reach in short bursts."""
    context_bytes: MeasuredBytes | None = None
    """Context and loaded kernels."""
    communicator_bytes: MeasuredBytes | None = None
    """Memory of communicators."""
    steps: tuple[StepCalibration, ...] = ()
    """Whole steps."""

    @property
    def has_seconds(self) -> bool:
        """Whether it changes predicted seconds."""
        rates = self.matrix or self.attention or self.links or self.memory_bytes_per_s
        return bool(rates or self.steps)

    @property
    def has_bytes(self) -> bool:
        """Whether it changes predicted bytes."""
        return self.context_bytes is not None or self.communicator_bytes is not None

    @property
    def is_empty(self) -> bool:
        """Whether it changes no prediction."""
        return not (self.has_seconds or self.has_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedGpu(Gpu):
    """A GPU with measured constants, which are neither columns of the catalogue nor fields of a question."""

    calibration: DeviceCalibration = field(metadata=UNWRITTEN)


def calibrated(gpu: Gpu, calibration: DeviceCalibration | None) -> Gpu:
    """A GPU with a calibration in place of an earlier one; without a calibration, the GPU of the data sheet.

    >>> from service.estimator.samples import H100
    >>> calibrated(calibrated(H100, DeviceCalibration(id="cal_1")), None) == H100
    True
    """
    facts = {one.name: getattr(gpu, one.name) for one in fields(Gpu)}
    return Gpu(**facts) if calibration is None else CalibratedGpu(**facts, calibration=calibration)


def calibration_of(gpu: Gpu) -> DeviceCalibration | None:
    """Calibration of a GPU; None where answers rest on data sheets and published measurements alone."""
    return gpu.calibration if isinstance(gpu, CalibratedGpu) else None


def calibration_id(gpu: Gpu) -> str | None:
    """Id of the calibration of a GPU, as `versions.calibration` names it; None without one.

    >>> from service.estimator.samples import H100
    >>> calibration_id(H100), calibration_id(calibrated(H100, DeviceCalibration(id="cal_1")))
    (None, 'cal_1')
    """
    known = calibration_of(gpu)
    return None if known is None else known.id


def streaming_bytes_per_s(gpu: Gpu, fraction: float) -> float:
    """Memory traffic that streaming kernels reach on a GPU.

    Formula: W x, W the data sheet's; or w x / MEMORY_FRACTION, w what was measured in short bursts
    Args:
        fraction: share of the data sheet's bandwidth that such kernels reach, where nothing was measured, x [1]
    Returns: bytes a second [byte/s]
    Source: the GPU's calibration; constants.MEMORY_FRACTION

    >>> from service.estimator.samples import H100
    >>> streaming_bytes_per_s(H100, 0.5)
    1675000000000.0
    """
    known = calibration_of(gpu)
    if known is None or known.memory_bytes_per_s is None:
        return gpu.memory_bytes_per_s * fraction
    return known.memory_bytes_per_s * fraction / MEMORY_FRACTION


PRIOR_MEASUREMENTS = 2
"""Measured steps that weigh as much as the published ones.
Source: scalars for each table of 311 published steps on A100 and H100: three rows' median halves the errors of a table
of one regime and adds to those of a table of several, so it is shrunk and not taken as it is."""


def own_scale(steps: Sequence[MeasuredStep]) -> float:
    """How many times as long as predicted a caller's steps take.

    Formula: exp(b),  b = w median(ln(measured / predicted)),  w = k / (k + 2)
    Args:
        steps: k measured steps
    Returns: the scale [1], 1 without any
    Source: PRIOR_MEASUREMENTS

    >>> round(own_scale((MeasuredStep(predicted_seconds=1.0, measured_seconds=1.1),) * 2), 3)
    1.049
    """
    return exp(_bias(_residuals(steps))) if steps else 1.0


def own_spread_fraction(steps: Sequence[MeasuredStep], spread: float) -> float:
    """Spread of the next step, by a caller's own and by that of its class.

    Formula:
        sqrt(w q^2 + (1 - w) r^2),  q the ceil(0.8 (k + 1))-th smallest |ln(measured / predicted) - b|, the largest
        where k is too small
    Args:
        steps: k measured steps
        spread: spread of the step's class, r [1]
    Returns: the spread, as a logarithm [1]
    Source: PRIOR_MEASUREMENTS; quantile of split conformal prediction (Lei et al. 2018, arXiv:1604.04173)

    >>> round(own_spread_fraction((MeasuredStep(predicted_seconds=1.0, measured_seconds=1.1),) * 2, 0.2), 3)
    0.145
    """
    if not steps:
        return spread
    residuals, trust = _residuals(steps), _trust(len(steps))
    bias = _bias(residuals)
    distances = sorted(abs(residual - bias) for residual in residuals)
    own = distances[min(len(distances), ceil(INSIDE_FRACTION * (len(distances) + 1))) - 1]
    return sqrt(trust * own**2 + (1 - trust) * spread**2)


def measured_scale(own: Sequence[MeasuredStep], calibrated: Sequence[MeasuredStep]) -> float:
    """How many times as long as predicted steps take, by a caller's own and by those that the GPU was calibrated on.

    Formula:
        x y, x the scale of the caller's steps, y that of the calibration's, which a caller's predictions had in them
    Args:
        own: the caller's measured steps
        calibrated: those that the GPU was calibrated on
    Returns: the scale [1], 1 without any of either
    Source: own_scale

    >>> measured_scale((), ())
    1.0
    """
    return own_scale(own) * own_scale(calibrated)


def calibrated_steps(gpu: Gpu, stack: StackName, implementation: ImplementationName | None) -> tuple[MeasuredStep, ...]:
    """The steps of one stack that a GPU was calibrated on; empty where none was measured."""
    known = calibration_of(gpu)
    given = () if known is None else known.steps
    return tuple(one.step for one in given if (one.stack, one.implementation) == (stack, implementation))


def _residuals(steps: Sequence[MeasuredStep]) -> list[float]:
    return [log(step.measured_seconds / step.predicted_seconds) for step in steps]


def _trust(count: int) -> float:
    return count / (count + PRIOR_MEASUREMENTS)


def _bias(residuals: Sequence[float]) -> float:
    from statistics import median  # slow to load, and few questions have measured steps

    return _trust(len(residuals)) * median(residuals)
