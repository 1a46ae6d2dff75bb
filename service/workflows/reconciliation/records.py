"""What is read of an accounting record, and what is wrong with one that cannot be read?"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from service.answers.reconciliations import Fault

RecordState = Literal[
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "TIMEOUT",
]
"""How a record may end. Source: Slurm's manual, JOB STATE CODES of sacct."""

UNFINISHED = frozenset({
    "COMPLETING", "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "PENDING", "POWER_UP_NODE", "RECONFIG_FAIL",
    "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
    "SUSPENDED", "UPDATE_DB",
})  # fmt: skip
"""States of jobs that have not ended. Source: as RecordState."""

ESTIMATE_ID = re.compile(r"est_[0-9a-f]{32}(?![0-9a-f])")
"""What a hook writes into a job's comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRecord:
    """One record of the accounting: a job, or one attempt at it, or one component of it."""

    place: str
    """Where it stands, in words."""
    cluster: str
    """Name of its cluster; empty where it is not told."""
    job_id: str
    """As sacct prints it: 12, 12_3 of an array, 12+1 of a heterogeneous job."""
    state: str
    """How it ended, or that it did not: a RecordState or one of UNFINISHED."""
    elapsed_seconds: float
    """Time for which it held its resources."""
    gpus: int | None
    """GPUs that it held; None where the accounting tells of none."""
    is_partition: bool
    """Whether they are slices of GPUs (MIG)."""
    started: str
    """When it began, as it is written; empty where it never did."""
    comment: str
    """What stands in its comments."""
    restarts: int
    """How often it had begun before, as far as it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRecords:
    """What an output of sacct holds."""

    records: tuple[SlurmRecord, ...]
    """Records of jobs, in order."""
    steps: int
    """Records of steps (.batch, .extern, .0), which are parts of their jobs' time and are not counted again."""
    faults: tuple[Fault, ...]
    """Records that cannot be read."""


class FaultFound(Exception):
    """A record cannot be read."""

    def __init__(self, field: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.field, self.message, self.fix = field, message, fix

    def at(self, place: str) -> Fault:
        """The same with its place."""
        return Fault(place=place, field=self.field, message=self.message, fix=self.fix)


def known_state(written: str, field: str) -> str:
    """How a record ended, of what its state says.

    Args:
        written: such as COMPLETED or CANCELLED by 1000
        field: column or field

    Returns:
        a state

    Raises:
        FaultFound: Slurm has no such state

    >>> known_state("CANCELLED by 1000", "State")
    'CANCELLED'
    """
    state = written.partition(" ")[0]
    if state in UNFINISHED or state in get_args(RecordState):
        return state
    if state.endswith("+"):
        raise FaultFound(field, "the state is cut off", "print whole fields: sacct --parsable2")
    raise FaultFound(field, "this is no state of a job that is known here", "give sacct's output as it is printed")
