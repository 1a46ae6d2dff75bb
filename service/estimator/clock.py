"""How fast does a GPU compute under a limit on its power, and what does it draw?"""

from service.estimator.job import Job

CLOCK_EXPONENT = 0.5
"""Rate of arithmetic as a power of the limit over the rated power: between 1/3, power growing as the cube of the clock
and nothing else, and 1, all of it growing with the clock.
Source: published steps on H100 held to 500 of 700 W, which run at 0.84 of the usual clock (0.84 = (5/7)^0.5)."""


def clock_fraction(power_limit_watts: float | None, board_watts: float) -> float:
    """Share of its usual rate of arithmetic that a GPU keeps under a limit on its power.

    Formula:
        min(1, P / P_rated) ^ 0.5

    Args:
        power_limit_watts: the limit, P; none where None [W]
        board_watts: the rated power, P_rated [W]

    Returns:
        share of the rate [1]

    Source:
        CLOCK_EXPONENT

    >>> clock_fraction(175.0, 700.0), clock_fraction(None, 700.0)
    (0.5, 1.0)
    """
    return 1.0 if power_limit_watts is None else min(1.0, power_limit_watts / board_watts) ** CLOCK_EXPONENT


def limited_watts(job: Job) -> float:
    """Power of one busy GPU board: its rated power, or the limit where that is lower.

    Formula:
        min(P, P_rated)

    Args:
        job: the job

    Returns:
        power [W]

    Source:
        definition

    >>> from service.estimator.samples import sample_job
    >>> limited_watts(sample_job())
    700.0
    """
    limit = job.cluster.power_limit_watts
    return job.gpu.board_watts if limit is None else min(limit, job.gpu.board_watts)
