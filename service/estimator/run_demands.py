"""Is it told once, and completely, how checkpoints are taken?"""

from service.estimator.job import Job
from service.estimator.question import Layout
from service.estimator.rules import Demand


def _interval_told_once(job: Job, _: Layout) -> bool:
    told = job.recipe.checkpoint
    return told is None or told.rule is None or told.interval_seconds is None


def _interval_words(job: Job, _: Layout) -> tuple[str, str]:
    told = job.recipe.checkpoint
    said = "" if told is None else f"interval_seconds {told.interval_seconds:g} and rule {told.rule}"
    return (
        f"the time between checkpoints is told twice, by {said}, and they may differ",
        "leave rule or interval_seconds out",
    )


def _stall_known(job: Job, _: Layout) -> bool:
    told = job.recipe.checkpoint
    return told is None or told.asynchronous or (told.stall_seconds is None) != (told.write_bytes_per_s is None)


def _stall_words(job: Job, _: Layout) -> tuple[str, str]:
    told = job.recipe.checkpoint
    if told is not None and told.stall_seconds is not None:
        return (
            f"a checkpoint that is not asynchronous stalls for stall_seconds {told.stall_seconds:g}, and until it is "
            "written at write_bytes_per_s: both are told, and they may differ",
            "leave stall_seconds or write_bytes_per_s out",
        )
    return (
        "a checkpoint that is not asynchronous stalls until it is written, and how long that takes is not told",
        "give checkpoint.stall_seconds or checkpoint.write_bytes_per_s",
    )


DEMANDS = (
    Demand("interval_is_told_once", "recipe.checkpoint.rule", _interval_told_once, _interval_words),
    Demand("stall_is_known", "recipe.checkpoint.asynchronous", _stall_known, _stall_words),
)
"""What the checkpoints of a job have to meet."""
