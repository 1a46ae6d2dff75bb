"""Can a GPU be held to the power that is asked for?"""

from service.estimator.job import Job
from service.estimator.question import Layout
from service.estimator.rules import Demand

LEAST_LIMIT_FRACTION = 0.2
"""Least limit that a board takes over its rated power: 100 of 400 W for an A100 SXM, 200 of 700 W for an H100 SXM.
Source: nvidia-smi -q -d POWER of both (0.25, 0.29), and some room for others."""


def _in_range(job: Job, _: Layout) -> bool:
    limit, rated = job.cluster.power_limit_watts, job.gpu.board_watts
    return limit is None or LEAST_LIMIT_FRACTION * rated <= limit <= rated


def _words(job: Job, _: Layout) -> tuple[str, str]:
    rated = job.gpu.board_watts
    return (
        f"power_limit_watts {job.cluster.power_limit_watts:g} is outside what a board of {rated:g} W can be held to",
        f"use {LEAST_LIMIT_FRACTION * rated:g} to {rated:g}, or leave it out",
    )


DEMANDS = (Demand("power_limit_in_range", "cluster.power_limit_watts", _in_range, _words),)
"""What the power of a job has to meet."""
