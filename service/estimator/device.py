"""How much of the device is in use beside the allocator's memory, and how much can a job use?"""

from math import hypot

from service.estimator.allocator import Shares
from service.estimator.device_calibration import MeasuredBytes, calibration_of
from service.estimator.gpu import Gpu
from service.estimator.interval import Basis, Interval
from service.estimator.job import Job
from service.estimator.software import version_of
from service.estimator.versions import at_least

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


def beside_allocator(job: Job) -> Shares:
    """Bytes on the device that no allocator sees: the context, and communicators where there is more than one GPU.

    Formula:
        CONTEXT_BYTES + COMMUNICATOR_BYTES, of the version of torch; what was measured on the GPU where something was

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
    context, extra = context_and_communicators(job.gpu, version_of(job.software, "torch"))
    joined = 1 if job.cluster.gpus > 1 else 0
    low, middle, high = (own + joined * more for own, more in zip(context, extra, strict=True))
    return low, middle, high


def context_and_communicators(gpu: Gpu, torch: str | None) -> tuple[Shares, Shares]:
    """Bytes of the context, and of communicators beside it, on one GPU.

    Args:
        gpu: the GPU
        torch: version of torch; None stands for the newest

    Returns:
        low, middle, high of each [byte]; what was measured on the GPU where something was
    """
    context, extra = (
        next(sizes for oldest, sizes in table if at_least(torch, oldest))
        for table in (CONTEXT_BYTES, COMMUNICATOR_BYTES)
    )
    measured = calibration_of(gpu)
    if measured is None:
        return context, extra
    return _told(measured.context_bytes) or context, _told(measured.communicator_bytes) or extra


def _told(measured: MeasuredBytes | None) -> Shares | None:
    return None if measured is None else (measured.low, measured.value, measured.high)


def memory_basis(gpu: Gpu) -> Basis:
    """What bytes beside the allocator rest on.

    Args:
        gpu: the GPU

    Returns:
        calibrated where they were measured on the GPU, else analytic
    """
    measured = calibration_of(gpu)
    return "calibrated" if measured is not None and measured.tells_bytes else "analytic"


def device_interval(reserved: Interval, beside: Shares, basis: Basis = "analytic") -> Interval:
    """Bytes in use on the device: the allocator's, the context's and the communicators'.

    Formula:
        reserved + what is beside the allocator; distances of both ends from the middle in quadrature

    Args:
        reserved: bytes that the allocator holds
        beside: bytes of context and communicators: low, middle, high [byte]
        basis: what those rest on

    Returns:
        the interval [byte]

    Source:
        independent errors add in quadrature; beside_allocator

    >>> device_interval(Interval(7.0, 10.0, 13.0, "analytic"), (1.0, 5.0, 9.0))
    Interval(low=10.0, value=15.0, high=20.0, basis='analytic')
    """
    low, middle, high = beside
    value = reserved.value + middle
    below = hypot(reserved.value - reserved.low, middle - low)
    above = hypot(reserved.high - reserved.value, high - middle)
    return Interval(value - below, value, value + above, basis)


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


def allocator_room_bytes(job: Job) -> float:
    """Memory of one GPU that is left to the allocator.

    Formula:
        usable - context - communicators

    Args:
        job: the job

    Returns:
        bytes of one GPU [byte]

    Source:
        usable_bytes; beside_allocator

    >>> from service.estimator.samples import sample_job
    >>> allocator_room_bytes(sample_job()) / 2**30
    78.5
    """
    return usable_bytes(job.gpu) - beside_allocator(job)[1]


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
