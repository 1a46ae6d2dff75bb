"""What did jobs take that were estimated before? An output of sacct, job by job beside what was predicted."""

from collections.abc import Callable

from service.answers.reconciliations import LeftOut, Reason, Reconciliation
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.store import Engine
from service.workflows.callers import Caller
from service.workflows.reconciliation.comparing import Judged, cut_short_at, judged
from service.workflows.reconciliation.jobs import FinishedJob, finished_jobs, left_out
from service.workflows.reconciliation.keeping import keep_jobs
from service.workflows.reconciliation.predictions import Prediction, predicted
from service.workflows.reconciliation.records import SlurmRecords
from service.workflows.reconciliation.summed import reconciliation_of

MOST_ESTIMATES = 1_000
"""Estimates whose jobs one request reconciles, however many jobs; the body's own limit bounds those. Source: a choice;
each estimate is worked out again, in a millisecond."""

Predict = Callable[[str], Prediction | None]
"""What an estimate said, by its id."""


def reconcile(
    engine: Engine,
    caller: Caller,
    found: SlurmRecords,
    now: Catalogue,
    catalogue_at: Callable[[str], Catalogue],
    look_again: Callable[[], bool],
) -> Reconciliation:
    """Jobs beside what was predicted of them; those whose hours are compared are kept as measurements.

    Args:
        engine: the database, which keeps the questions of checks
        caller: whose the jobs are
        found: records of the accounting
        now: the facts of today
        catalogue_at: the facts of a revision
        look_again: waits for questions that others are about to write; false where nobody is

    Returns:
        each job that ended and was estimated, and how many others there are, by reason

    Raises:
        Refused: there are too many at once
        Unreachable: the database does not answer
    """

    def predict(estimate_id: str) -> Prediction | None:
        return predicted(engine, caller.whose, estimate_id, now, catalogue_at, look_again)

    jobs, others = judged_jobs(found, predict)
    keep_jobs(engine, caller, jobs, now)
    return reconciliation_of([one.compared for one in jobs], others, found.faults, found.steps)


def judged_jobs(found: SlurmRecords, predict: Predict) -> tuple[list[Judged], tuple[LeftOut, ...]]:
    """The jobs of an accounting beside what was predicted of them.

    Args:
        found: records of the accounting
        predict: tells what an estimate said

    Returns:
        each job that ended and was estimated, and how many others there are, by reason

    Raises:
        Refused: there are jobs of too many estimates at once
    """
    jobs, others = finished_jobs(found.records)
    by_estimate: dict[str, list[FinishedJob]] = {}
    for job in jobs:
        by_estimate.setdefault(job.estimate_id, []).append(job)
    if len(by_estimate) > MOST_ESTIMATES:
        message = f"jobs of {len(by_estimate)} estimates are more than the {MOST_ESTIMATES} that one request takes"
        fix = "send fewer at once, as `traincost reconcile` does by itself"
        raise Refused(Problem(field="", code="too_many_jobs", message=message, fix=fix))
    found_jobs: list[Judged] = []
    unknown: list[Reason] = []
    for estimate_id, of_it in by_estimate.items():
        prediction, cut_short = predict(estimate_id), cut_short_at(of_it)
        unknown += ["unknown_estimate"] * len(of_it) if prediction is None else []
        found_jobs += [] if prediction is None else [judged(job, prediction, cut_short) for job in of_it]
    return found_jobs, (*others, *left_out(unknown))
