"""How much may the allocator hold on the fullest GPU for a layout to fit?"""

from math import inf

from service.estimator.answer import Interval
from service.estimator.memory.device import (
    allocated_interval,
    beside_allocator,
    device_interval,
    headroom_bytes,
    oom_probability_fraction,
    reserved_interval,
    reserved_shares,
    usable_bytes,
    verdict_of,
)
from service.estimator.workload import Job

HALVINGS = 100
"""Halvings of an interval after which its ends are neighbours. Source: 53 bits of a double, and some to spare."""


def fits(job: Job, reserved: float, headroom_fraction: float = 0.0) -> bool:
    """Whether a job fits whose fullest GPU's allocator holds so much.

    Args:
        job: the job
        reserved: what the allocator holds [byte]
        headroom_fraction: share of the usable memory that has to stay free [1]

    Returns:
        whether the verdict is `fits` and so much stays free
    """
    device = _device(job, reserved)
    usable = usable_bytes(job.gpu)
    free = headroom_bytes(usable, device) >= headroom_fraction * usable
    return free and verdict_of(oom_probability_fraction(device, usable)) == "fits"


def most_reserved_bytes(job: Job, headroom_fraction: float = 0.0) -> float:
    """The most that the allocator may hold on the fullest GPU of a layout that fits.

    Formula:
        the largest reserved memory of which `fits` is true, which is true of all that are smaller

    Args:
        job: the job
        headroom_fraction: share of the usable memory that has to stay free [1]

    Returns:
        bytes of one GPU [byte]; minus infinity where nothing fits

    Source:
        allocator.reserved_interval, device.device_interval, verdict

    >>> from service.estimator.samples import sample_job
    >>> most = most_reserved_bytes(sample_job())
    >>> fits(sample_job(), most), fits(sample_job(), most * 1.0001)
    (True, False)
    """
    low, high = 1.0, 2 * usable_bytes(job.gpu)
    if not fits(job, low, headroom_fraction):
        return -inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(job, middle, headroom_fraction) else (low, middle)
    return low


def device_bytes(job: Job, reserved: float) -> float:
    """Bytes in use on a device whose allocator holds so much.

    Formula:
        reserved + what is beside the allocator

    Args:
        job: the job
        reserved: what the allocator holds [byte]

    Returns:
        bytes of one GPU [byte]

    Source:
        device.device_interval

    >>> from service.estimator.samples import sample_job
    >>> device_bytes(sample_job(), 2**30) / 2**30
    1.6
    """
    return _device(job, reserved).value


def _device(job: Job, reserved: float) -> Interval:
    spread = reserved_interval(allocated_interval(job, 1.0), reserved, reserved_shares(job))
    return device_interval(spread, beside_allocator(job))
