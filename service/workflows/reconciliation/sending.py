"""How do many jobs reach the service? In parts, with nothing of the accounting that it does not need."""

from collections.abc import Callable, Iterator, Sequence

from service.answers.reconciliations import Reconciliation
from service.workflows.reconciliation.jobs import FinishedJob, finished_jobs
from service.workflows.reconciliation.reading import handed_on, read_sacct
from service.workflows.reconciliation.summed import reconciliation_of

JOBS_AT_ONCE = 500
"""Jobs of one request, but for those of one estimate. Source: a choice; some 60 kB."""


def reconciled_by(ask: Callable[[str], Reconciliation], text: str) -> Reconciliation:
    """Jobs of an output of sacct, as the service compares them.

    Args:
        ask: has the service reconcile a table
        text: what sacct printed

    Returns:
        what all parts amount to

    Raises:
        Refused: the text is no output of sacct
    """
    found = read_sacct(text)
    jobs, left_out = finished_jobs(found.records)
    answers = [ask(handed_on(part)) for part in _parts(jobs)]
    return reconciliation_of(
        [job for answer in answers for job in answer.jobs],
        [*left_out, *(one for answer in answers for one in answer.left_out)],
        [*found.faults, *(fault for answer in answers for fault in answer.faults)],
        found.steps,
    )


def _parts(jobs: Sequence[FinishedJob]) -> Iterator[list[FinishedJob]]:
    """Jobs in parts, those of one estimate together, however many: whether one went on from another is told by both.

    The jobs of one estimate so have to stand in one body.
    """
    by_estimate: dict[str, list[FinishedJob]] = {}
    for job in jobs:
        by_estimate.setdefault(job.estimate_id, []).append(job)
    part: list[FinishedJob] = []
    for of_it in by_estimate.values():
        if part and len(part) + len(of_it) > JOBS_AT_ONCE:
            yield part
            part = []
        part = [*part, *of_it]
    if part:
        yield part
