"""How much of the time of a run do checkpoints and interruptions take, as shares of the useful time?"""

from dataclasses import dataclass
from typing import Any

from service.estimator.checkpoint import checkpoint_bytes
from service.estimator.checkpointing import Checkpointing
from service.estimator.filled import filled
from service.estimator.goodput import (
    checkpoint_waste_fraction,
    daly_interval_seconds,
    goodput_fraction,
    interruption_seconds,
    lost_days,
    lost_work_fraction,
    restart_fraction,
    snapshot_seconds,
    write_seconds,
    young_interval_seconds,
)
from service.estimator.job import Job
from service.estimator.numeric import ceil_div
from service.estimator.price import Price
from service.estimator.question import Question
from service.estimator.resolve import Resolved
from service.estimator.run_constants import CHECKPOINT_SECONDS
from service.estimator.run_parts import Goodput, LostTime

INTERVALS = {"young": young_interval_seconds, "daly": daly_interval_seconds}
"""Formula of each rule."""

USUAL = Checkpointing()
"""Asynchronous checkpoints, as often as wastes least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What interruptions and checkpoints take, each as a share of the useful time."""

    interruption_seconds: float
    """Mean time between interruptions of the job."""
    checkpoint_seconds: float
    """Stall of one checkpoint."""
    interval_seconds: float
    """Useful time between checkpoints."""
    checkpoints_fraction: float
    """Stalls over useful time."""
    lost_work_fraction: float
    """Work done again over useful time."""
    restarts_fraction: float
    """Restarts over useful time."""

    @property
    def goodput_fraction(self) -> float:
        """Useful share of the wall time."""
        return goodput_fraction(self.checkpoints_fraction, self.lost_work_fraction, self.restarts_fraction)


def losses_of(resolved: Resolved, step_seconds: float) -> Losses:
    """What interruptions and checkpoints take.

    Args:
        resolved: the question, defaults filled
        step_seconds: seconds of one step: no checkpoint is taken within one [s]

    Returns:
        the losses
    """
    full, told = resolved.question, checkpointing_of(resolved.job)
    between, written = interruption_seconds(**interruption_inputs(full)), written_bytes(resolved.job)
    stall = stall_seconds(told, written, full.cluster.gpus, full.gpu.host_bytes_per_s)
    interval = max(told.interval_seconds or INTERVALS[told.rule or "young"](stall, between), step_seconds)
    if told.asynchronous and told.write_bytes_per_s is not None:
        interval = max(interval, write_seconds(written, told.write_bytes_per_s))
    return Losses(
        interruption_seconds=between,
        checkpoint_seconds=stall,
        interval_seconds=interval,
        checkpoints_fraction=checkpoint_waste_fraction(stall, interval),
        lost_work_fraction=lost_work_fraction(interval, between),
        restarts_fraction=restart_fraction(filled(full.cluster.restart_seconds), between),
    )


def written_bytes(job: Job) -> float:
    """Bytes of a checkpoint where its time follows from them.

    Formula:
        checkpoint bytes of the job where write_bytes_per_s is told, else 0: nobody asks for them

    Args:
        job: the job

    Returns:
        bytes of the whole job [byte]

    Source:
        checkpoint_bytes of checkpoint.py

    >>> from service.estimator.samples import sample_job
    >>> written_bytes(sample_job())
    0.0
    """
    return 0.0 if checkpointing_of(job).write_bytes_per_s is None else checkpoint_bytes(job)


def stall_seconds(told: Checkpointing, written_bytes: float, gpus: int, host_bytes_per_s: float) -> float:
    """Time that training stands still for one checkpoint.

    Formula:
        stall_seconds where it is told, 30 s where nothing is; else checkpoint bytes / write rate, or asynchronously
        checkpoint bytes / (GPUs x host link)

    Args:
        told: how checkpoints are taken
        written_bytes: a checkpoint of the whole job [byte]
        gpus: GPUs of the job [1]
        host_bytes_per_s: rate from one GPU to its host [byte/s]

    Returns:
        the stall [s]

    Source:
        CHECKPOINT_SECONDS, snapshot_seconds and write_seconds of goodput.py

    >>> stall_seconds(Checkpointing(write_bytes_per_s=2e9), 112e9, 8, 56e9)
    0.25
    """
    if told.stall_seconds is not None or told.write_bytes_per_s is None:
        return told.stall_seconds or CHECKPOINT_SECONDS
    if told.asynchronous:
        return snapshot_seconds(written_bytes, gpus, host_bytes_per_s)
    return write_seconds(written_bytes, told.write_bytes_per_s)


def checkpointing_of(job: Job) -> Checkpointing:
    """How a job takes checkpoints, where it does not say so as usual.

    Args:
        job: the job

    Returns:
        the rules
    """
    return job.recipe.checkpoint or USUAL


def interruption_inputs(question: Question) -> dict[str, Any]:
    """What the mean time between interruptions follows from.

    Args:
        question: the question, defaults filled

    Returns:
        arguments of interruption_seconds
    """
    cluster, price = question.cluster, question.price
    return {
        "gpus": cluster.gpus,
        "failures_per_gpu_hour": filled(cluster.failures_per_gpu_hour),
        "instances": int(ceil_div(cluster.gpus, cluster.gpus_per_node)),
        "preemptions_per_instance_hour": (
            filled(price.preemptions_per_instance_hour) if isinstance(price, Price) else 0.0
        ),
    }


def goodput_parts(losses: Losses, ideal_days: float) -> Goodput:
    """How interruptions and checkpoints divide the time of a run.

    Args:
        losses: what they take
        ideal_days: wall time of the run if nothing were lost [d]

    Returns:
        the parts
    """
    shares = {
        "checkpoints": losses.checkpoints_fraction,
        "lost_work": losses.lost_work_fraction,
        "restarts": losses.restarts_fraction,
    }
    return Goodput(
        interruption_seconds=losses.interruption_seconds,
        checkpoint_seconds=losses.checkpoint_seconds,
        checkpoint_interval_seconds=losses.interval_seconds,
        lost=tuple(LostTime(kind=kind, days=lost_days(ideal_days, share)) for kind, share in shares.items()),
    )
