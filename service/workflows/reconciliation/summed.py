"""What do reconciled jobs amount to together?"""

from collections.abc import Sequence
from statistics import median

from service.answers.reconciliations import Fault, LeftOut, ReconciledJob, Reconciliation

MOST_FAULTS = 20
"""Records that an answer names as unreadable. Source: a choice; nobody mends more at once."""


def reconciliation_of(
    jobs: Sequence[ReconciledJob], left_out: Sequence[LeftOut], faults: Sequence[Fault], steps: int
) -> Reconciliation:
    """What jobs amount to together.

    Args:
        jobs: the jobs
        left_out: jobs of which nothing is said
        faults: records that cannot be read
        steps: records of steps

    Returns:
        the answer
    """
    ratios = [job.used_over_predicted_fraction for job in jobs if job.used_over_predicted_fraction is not None]
    merged: dict[str, LeftOut] = {}
    for one in left_out:
        before = merged.get(one.reason)
        count = one.jobs + (0 if before is None else before.jobs)
        merged[one.reason] = LeftOut(reason=one.reason, jobs=count, message=one.message, fix=one.fix)
    return Reconciliation(
        compared=len(ratios),
        inside=sum(job.is_inside is True for job in jobs),
        median_used_over_predicted_fraction=median(ratios) if ratios else None,
        verdicts_right=sum(job.is_verdict_right is True for job in jobs),
        verdicts_wrong=sum(job.is_verdict_right is False for job in jobs),
        out_of_memory=sum(job.state == "OUT_OF_MEMORY" for job in jobs),
        jobs=tuple(jobs),
        left_out=tuple(merged.values()),
        faults=tuple(faults[:MOST_FAULTS]),
        faults_left_off=max(len(faults) - MOST_FAULTS, 0),
        steps=steps,
    )
