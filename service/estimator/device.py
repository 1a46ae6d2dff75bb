"""How much does the device hold beyond live tensors, and how likely is it to run out?"""

from math import erf, log, sqrt

from service.estimator.answer import Interval, Verdict
from service.estimator.gpu import Gpu
from service.estimator.job import Job

ALLOCATED_SPREAD = (0.90, 1.20)
"""80 % of measured allocated peaks lie between these shares of the analytic value.
Source: residuals against published peaks that were not used to make the formulas; see DECISIONS."""

RESERVED_SHARE = (1.01, 1.04, 1.09)
"""Reserved over allocated: low, middle, high.
Source: MooreThreads/SimuMax@4dcaae5, 344 rank measurements: median 1.038, p90 1.071, maximum 1.093."""

EXPANDABLE_SHARE = (1.0, 1.01, 1.05)
"""The same where segments grow instead of being opened anew, or pools and holes are told apart.
Source: PyTorch CUDA caching allocator, expandable_segments; replays of its rules for published torchtitan runs."""

Shares = tuple[float, float, float]

CONTEXT_BYTES = (0.47 * 2**30, 0.6 * 2**30, 0.92 * 2**30)
"""CUDA context and loaded kernels: low, middle, high. Source: stas00/ml-engineering@744d01e training/performance."""

COMMUNICATOR_BYTES = (0.5 * 2**30, 1.0 * 2**30, 1.5 * 2**30)
"""What torch.distributed adds at its first collective. Source: stas00/ml-engineering@744d01e training/performance."""

_NORMAL_80 = 1.2816
"""Standard deviations from the middle to either end of a central 80 % interval of a normal distribution.
Source: definition."""


def allocated_interval(peak_bytes: float) -> Interval:
    """Live tensors at the peak, with the spread that measured peaks show around it.

    Formula:
        sum of the lines of the fullest stage; x ALLOCATED_SPREAD at the ends

    Args:
        peak_bytes: sum of the lines of the fullest stage [byte]

    Returns:
        the interval [byte]

    Source:
        residuals against published peaks (ALLOCATED_SPREAD)
    """
    low, high = ALLOCATED_SPREAD
    return Interval(low * peak_bytes, peak_bytes, high * peak_bytes, "analytic")


def reserved_interval(allocated: Interval, held_bytes: float, shares: Shares) -> Interval:
    """Bytes that the allocator holds: live tensors, pools of other streams and holes, and fragments.

    Formula:
        (allocated + held) x share

    Args:
        allocated: live tensors
        held_bytes: what the allocator holds beside them by the way the stack allocates [byte]
        shares: what fragments add: low, middle, high [1]

    Returns:
        the interval [byte]

    Source:
        reserved_shares; held.held_bytes
    """
    low, middle, high = shares
    return Interval(
        (allocated.low + held_bytes) * low,
        (allocated.value + held_bytes) * middle,
        (allocated.high + held_bytes) * high,
        "analytic",
    )


def reserved_shares(job: Job) -> Shares:
    """What fragments add to what the allocator would hold without them: low, middle, high.

    Formula:
        by the stack: RESERVED_SHARE, or nearly nothing where segments grow

    Args:
        job: the job

    Returns:
        the shares [1]

    Source:
        RESERVED_SHARE; EXPANDABLE_SHARE

    >>> from service.estimator.samples import sample_job
    >>> reserved_shares(sample_job())
    (1.01, 1.04, 1.09)
    """
    return EXPANDABLE_SHARE if job.software.expandable_segments or job.stack.gathers_on_streams else RESERVED_SHARE


def device_interval(reserved: Interval, gpus: int) -> Interval:
    """Bytes in use on the device: the allocator's, the context's and the communicators'.

    Formula:
        reserved + CONTEXT_BYTES, + COMMUNICATOR_BYTES where there is more than one GPU

    Args:
        reserved: bytes that the allocator holds
        gpus: GPUs in all; one alone opens no communicator [1]

    Returns:
        the interval [byte]

    Source:
        stas00/ml-engineering@744d01e training/performance (CONTEXT_BYTES, COMMUNICATOR_BYTES)
    """
    ends = (reserved.low, reserved.value, reserved.high)
    beside = [
        context + (extra if gpus > 1 else 0) for context, extra in zip(CONTEXT_BYTES, COMMUNICATOR_BYTES, strict=True)
    ]
    low, value, high = (end + more for end, more in zip(ends, beside, strict=True))
    return Interval(low, value, high, "analytic")


def usable_bytes(gpu: Gpu) -> float:
    """Memory that a job can use on one GPU.

    Formula:
        the GPU's row

    Args:
        gpu: the GPU

    Returns:
        bytes of one GPU [byte]

    Source:
        the GPU's row in the catalogue

    >>> from service.estimator.samples import H100
    >>> usable_bytes(H100) / 2**30
    79.1
    """
    return gpu.usable_bytes


def headroom_bytes(usable: float, device: Interval) -> float:
    """Memory that is left on the fullest GPU; negative where bytes are missing.

    Formula:
        usable - device peak

    Args:
        usable: memory a job can use [byte]
        device: the device peak

    Returns:
        bytes of one GPU [byte]

    Source:
        definition

    >>> headroom_bytes(10.0, Interval(9.0, 12.0, 13.0, "analytic"))
    -2.0
    """
    return usable - device.value


def oom_probability_fraction(device: Interval, usable_bytes: float) -> float:
    """Probability that the device peak exceeds what a job can use, from a log-normal spread.

    Formula:
        1 - Phi(ln(usable / value) / sigma),  sigma = ln(high / value) / 1.2816

    Args:
        device: the device peak
        usable_bytes: memory a job can use [byte]

    Returns:
        probability [1]

    Source:
        definition; the interval is the central 80 %

    >>> oom_probability_fraction(Interval(9.0, 10.0, 11.0, "analytic"), 10.0)
    0.5
    """
    deviations = _NORMAL_80 * log(usable_bytes / device.value) / log(device.high / device.value)
    return (1 - erf(deviations / sqrt(2))) / 2


def verdict_of(probability_fraction: float) -> Verdict:
    """The word for a probability of running out of memory.

    Args:
        probability_fraction: probability that the device peak exceeds the usable memory [1]

    Returns:
        below 5 % fits, up to 50 % at_risk, above out_of_memory

    >>> verdict_of(0.2)
    'at_risk'
    """
    if probability_fraction < 0.05:
        return "fits"
    return "at_risk" if probability_fraction <= 0.5 else "out_of_memory"
