"""Can what a caller says of measured steps be true?"""

from service.estimator.job import Job
from service.estimator.measured_step import MeasuredStep
from service.estimator.question import Layout
from service.estimator.rules import Demand

MOST_RATIO = 10.0
"""Measured over predicted seconds of a step, or the other way round, beyond which one of them is of another
configuration or in another unit. Source: an assumption; a round figure."""


def _implausible(job: Job) -> list[tuple[int, MeasuredStep]]:
    return [
        (index, step)
        for index, step in enumerate(job.cluster.measured_steps)
        if not 1 / MOST_RATIO <= step.measured_seconds / step.predicted_seconds <= MOST_RATIO
    ]


def _plausible(job: Job, _: Layout) -> bool:
    return not (job.cluster.measured_steps and _implausible(job))


def _words(job: Job, _: Layout) -> tuple[str, str]:
    index, step = _implausible(job)[0]
    return (
        f"measured step {index} took {step.measured_seconds:g} s, and {step.predicted_seconds:g} s predicted: more "
        f"than {MOST_RATIO:g} times apart, so one of them is of another configuration or in another unit",
        "give seconds of the same step in both, or leave it out",
    )


DEMANDS = (Demand("measured_steps_plausible", "cluster.measured_steps", _plausible, _words),)
"""What measured steps have to meet."""
