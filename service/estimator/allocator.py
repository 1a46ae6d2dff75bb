"""How much does the allocator hold beyond live tensors?"""

from math import exp, hypot, log

from service.estimator.interval import Interval
from service.estimator.job import Job
from service.estimator.numeric import Amount, maximum, where

Shares = tuple[float, float, float]
"""A low, a middle and a high value."""

RESERVED_SHARE = (1.01, 1.04, 1.09)
"""Reserved over allocated: low, middle, high.
Source: MooreThreads/SimuMax@4dcaae5, 344 rank measurements: median 1.038, p90 1.071, maximum 1.093."""

EXPANDABLE_SHARE = (1.0, 1.01, 1.05)
"""The same where segments grow instead of being opened anew, or pools and holes are told apart.
Source: PyTorch CUDA caching allocator, expandable_segments; replays of its rules for published torchtitan runs."""

HELD_ROOM = 0.92
"""Share of its room above which the allocator fails to open a segment and gives back all that is cached.
Source: published nanotron runs, of which any share from 0.87 to 0.93 explains the same ones."""

HELD_SHARE = 1.01
"""What fragments add where pools and holes are counted one by one. Source: as EXPANDABLE_SHARE, the middle."""


def reserved_bytes(allocated_bytes: Amount, held_bytes: Amount, share: float, room_bytes: float) -> Amount:
    """Bytes that the allocator holds on one GPU: live tensors, fragments, pools of other streams and holes.

    What it holds beside live tensors it gives back when the device has no more, so only live tensors and their
    fragments can run it out of memory.

    Formula:
        max(allocated x share, (allocated + held) x HELD_SHARE where that is at most HELD_ROOM x room)

    Args:
        allocated_bytes: live tensors [byte]
        held_bytes: what the stack makes the allocator hold beside them [byte]
        share: what fragments add [1]
        room_bytes: what the device leaves the allocator [byte]

    Returns:
        bytes of one GPU [byte]

    Source:
        PyTorch CUDA caching allocator (frees cached blocks before it fails); reserved_shares; held.held_bytes

    >>> reserved_bytes(100.0, 0.0, 1.04, 200.0), reserved_bytes(100.0, 500.0, 1.04, 200.0)
    (104.0, 104.0)
    """
    whole = (allocated_bytes + held_bytes) * HELD_SHARE
    return maximum(allocated_bytes * share, where(whole <= HELD_ROOM * room_bytes, whole, 0.0))


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


def reserved_interval(allocated: Interval, reserved_bytes: float, shares: Shares) -> Interval:
    """Bytes that the allocator holds, with the spread of live tensors and, apart from it, of fragments.

    Formula:
        reserved x exp(-/+ sqrt(a^2 + f^2)), a and f the logarithms of both spreads

    Args:
        allocated: live tensors
        reserved_bytes: what the allocator holds [byte]
        shares: what fragments add: low, middle, high [1]

    Returns:
        the interval [byte]

    Source:
        independent errors add in quadrature; reserved_shares

    >>> reserved_interval(Interval(90.0, 100.0, 110.0, "analytic"), 100.0, (1.0, 1.0, 1.0)).high
    110.0
    """
    low, middle, high = shares
    below = hypot(log(allocated.value / allocated.low), log(middle / low))
    above = hypot(log(allocated.high / allocated.value), log(high / middle))
    return Interval(reserved_bytes * exp(-below), reserved_bytes, round(reserved_bytes * exp(above), 6), "analytic")
