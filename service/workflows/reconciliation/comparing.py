"""How near did a prediction come to what a job took?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from service.answers.reconciliations import EndState, ReconciledJob
from service.units import BYTES, said
from service.workflows.reconciliation.jobs import FinishedJob
from service.workflows.reconciliation.predictions import Prediction

NO_LENGTH = "the estimate says no hours, because its question says no length of the run (recipe.training_tokens)"
NOT_COMPLETED = "it did not complete, so what it used is no whole run"
SLICES = "it ran on slices of GPUs, of which no prediction is made"
ATTEMPTS = "earlier attempts are not told: call sacct with --duplicates"
GOES_ON = "jobs of the same estimate ran out of time before, so it may have gone on from a checkpoint of theirs"
HOST_MEMORY = (
    "OUT_OF_MEMORY is Slurm's word for memory of the node, not of a GPU, whose shortage ends as FAILED; a rank was to "
    "take {host} of it"
)

CUT_SHORT: frozenset[str] = frozenset({"DEADLINE", "NODE_FAIL", "PREEMPTED", "TIMEOUT"})
"""Ends after which a run goes on from its checkpoint in another job."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A job, its prediction, and what comes of them."""

    job: FinishedJob
    """The job."""
    prediction: Prediction
    """What its estimate said."""
    compared: ReconciledJob
    """The one beside the other."""


def judged(job: FinishedJob, prediction: Prediction, cut_short: str | None) -> Judged:
    """A job beside its prediction.

    Args:
        job: the job
        prediction: what its estimate said
        cut_short: when the first job of the same estimate began that was cut short; None where none was

    Returns:
        the comparison
    """
    state = cast(EndState, job.state)
    note = _not_compared(job, prediction, cut_short)
    hours = prediction.gpu_hours
    is_compared = note is None and hours is not None
    if state == "OUT_OF_MEMORY":
        note = HOST_MEMORY.format(host=said(prediction.host_bytes, BYTES))
    row = ReconciledJob(
        cluster=job.cluster,
        job_id=job.job_id,
        state=state,
        estimate_id=job.estimate_id,
        gpus=job.gpus,
        attempts=job.attempts,
        elapsed_seconds=job.elapsed_seconds,
        used_gpu_hours=job.gpu_hours,
        predicted_gpu_hours=hours,
        used_over_predicted_fraction=job.gpu_hours / hours.value if is_compared and hours is not None else None,
        is_inside=hours.low <= job.gpu_hours <= hours.high if is_compared and hours is not None else None,
        verdict=prediction.verdict,
        is_verdict_right=_is_verdict_right(state, prediction.verdict),
        is_asked_again=prediction.is_asked_again,
        note=note,
    )
    return Judged(job, prediction, row)


def _not_compared(job: FinishedJob, prediction: Prediction, cut_short: str | None) -> str | None:
    """Why hours cannot be compared; None where they can."""
    if job.state != "COMPLETED":
        return NOT_COMPLETED
    if prediction.gpu_hours is None:
        return NO_LENGTH
    if job.is_partition:
        return SLICES
    if job.gpus != prediction.gpus:
        return f"it ran on {job.gpus} GPUs, and the estimate is one of {prediction.gpus}"
    if not job.is_whole:
        return ATTEMPTS
    return GOES_ON if cut_short is not None and cut_short < job.started else None


def cut_short_at(jobs: Iterable[FinishedJob]) -> str | None:
    """When the first job began that was cut short, so that a later one may have gone on from it.

    Args:
        jobs: jobs of one estimate

    Returns:
        the moment, as sacct tells it; None where none was cut short
    """
    return min((job.started for job in jobs if job.state in CUT_SHORT), default=None)


def _is_verdict_right(state: str, verdict: Literal["fits", "at_risk", "out_of_memory"]) -> bool | None:
    """Whether the end of a job bears its verdict out: only a job that completes tells that GPUs had memory enough."""
    return verdict != "out_of_memory" if state == "COMPLETED" else None
