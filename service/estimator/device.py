"""How much does the device hold beyond live tensors, and how likely is it to run out?"""

from math import erf, log, sqrt

from service.estimator.answer import Interval, Verdict
from service.estimator.gpu import Gpu
from service.estimator.job import Job
from service.estimator.software import version_of
from service.estimator.versions import at_least

Shares = tuple[float, float, float]
"""A low, a middle and a high value."""

ALLOCATED_SPREAD = (0.90, 1.20)
"""80 % of measured allocated peaks lie between these shares of the analytic value.
Source: residuals against published peaks that were not used to make the formulas; see DECISIONS."""

RESERVED_SHARE = (1.01, 1.04, 1.09)
"""Reserved over allocated: low, middle, high.
Source: MooreThreads/SimuMax@4dcaae5, 344 rank measurements: median 1.038, p90 1.071, maximum 1.093."""

EXPANDABLE_SHARE = (1.0, 1.01, 1.05)
"""The same where segments grow instead of being opened anew, or pools and holes are told apart.
Source: PyTorch CUDA caching allocator, expandable_segments; replays of its rules for published torchtitan runs."""

CONTEXT_BYTES: tuple[tuple[str, Shares], ...] = (
    ("2.2", (0.47 * 2**30, 0.6 * 2**30, 0.92 * 2**30)),
    ("2.0", (0.47 * 2**30, 0.92 * 2**30, 1.1 * 2**30)),
    ("0", (0.92 * 2**30, 1573 * 2**20, 1.78 * 2**30)),
)
"""CUDA context and loaded kernels by the oldest torch that they hold for: low, middle, high. Kernels load lazily in the
newest, all at once before. Source: stas00/ml-engineering@744d01e training/performance (torch 1.10, 2.1 and later);
bigscience-workshop/bigscience@9e64edec2 chronicles-prequel (1573 MiB)."""

COMMUNICATOR_BYTES: tuple[tuple[str, Shares], ...] = (
    ("2.2", (0.5 * 2**30, 1.0 * 2**30, 1.5 * 2**30)),
    ("0", (1.0 * 2**30, 1.45 * 2**30, 1.5 * 2**30)),
)
"""What torch.distributed adds at its first collective, in the same form.
Source: stas00/ml-engineering@744d01e training/performance (0.55 to 2.00 GiB)."""

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
    return EXPANDABLE_SHARE if job.software.expandable_segments else RESERVED_SHARE


def beside_allocator(job: Job) -> Shares:
    """Bytes on the device that no allocator sees: the context, and communicators where there is more than one GPU.

    Formula:
        CONTEXT_BYTES + COMMUNICATOR_BYTES, of the version of torch

    Args:
        job: the job

    Returns:
        low, middle, high [byte]

    Source:
        CONTEXT_BYTES, COMMUNICATOR_BYTES

    >>> from service.estimator.samples import sample_job
    >>> beside_allocator(sample_job())[1] / 2**30
    0.6
    """
    version = version_of(job.software, "torch")
    context, extra = (
        next(sizes for oldest, sizes in table if at_least(version, oldest))
        for table in (CONTEXT_BYTES, COMMUNICATOR_BYTES)
    )
    joined = 1 if job.cluster.gpus > 1 else 0
    low, middle, high = (own + joined * more for own, more in zip(context, extra, strict=True))
    return low, middle, high


def device_interval(reserved: Interval, beside: Shares) -> Interval:
    """Bytes in use on the device: the allocator's, the context's and the communicators'.

    Formula:
        reserved + what is beside the allocator

    Args:
        reserved: bytes that the allocator holds
        beside: bytes of context and communicators: low, middle, high [byte]

    Returns:
        the interval [byte]

    Source:
        beside_allocator
    """
    ends = (reserved.low, reserved.value, reserved.high)
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
