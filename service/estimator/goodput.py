"""What share of the wall time is useful once GPUs fail and checkpoints are written?"""

from math import sqrt

GPU_FAILURE_HOURS = 50_700.0
"""Mean GPU-hours between interruptions: 419 unexpected ones in 54 days on 16,384 H100.
Source: Llama 3, arXiv:2407.21783, section 3.3.4."""

CHECKPOINT_SECONDS = 30.0
"""Time that training stands still for one checkpoint. Source: a round figure for asynchronous checkpoints."""

RESTART_SECONDS = 600.0
"""Time from an interruption to the first new step. Source: a round figure; Llama 3's > 90 % goodput implies less."""


def checkpoint_interval_seconds(checkpoint_seconds: float, failure_seconds: float) -> float:
    """Time between checkpoints that wastes least for one job.

    Formula:
        sqrt(2 delta M)

    Args:
        checkpoint_seconds: stall of one checkpoint, delta [s]
        failure_seconds: mean time between the job's interruptions, M [s]

    Returns:
        the interval [s]

    Source:
        Young 1974, doi:10.1145/361147.361115

    >>> checkpoint_interval_seconds(30.0, 15_000.0)
    948.6832980505138
    """
    return sqrt(2 * checkpoint_seconds * failure_seconds)


def goodput_fraction(gpus: int) -> float:
    """Useful share of the wall time of one job.

    Formula:
        1 / (1 + delta / tau + (tau / 2 + R) / M),  M = GPU_FAILURE_HOURS / GPUs

    Args:
        gpus: GPUs in all [1]

    Returns:
        share of the wall time [1]

    Source:
        Daly 2006, doi:10.1016/j.future.2004.11.016; rates above

    >>> round(goodput_fraction(16_384), 3)
    0.887
    """
    failure_seconds = GPU_FAILURE_HOURS * 3600 / gpus
    interval = checkpoint_interval_seconds(CHECKPOINT_SECONDS, failure_seconds)
    waste = CHECKPOINT_SECONDS / interval + (interval / 2 + RESTART_SECONDS) / failure_seconds
    return 1 / (1 + waste)
