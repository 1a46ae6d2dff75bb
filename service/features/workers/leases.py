"""Leases in requests of workers: read from the header, refused without revealing whether the job exists."""

from fastapi import Request

from service.api.access.authorization import caller_of
from service.api.errors import WrongParameter
from service.errors import LeaseLost, Problem
from service.features.workers.openapi import LEASE_HEADER
from service.jobs.leases import Lease

MOST_CHARACTERS = 100
"""Longest lease text; a real one has 43 characters."""

NOT_HELD = Problem(
    field="lease",
    code="lease_lost",
    message="no job is held under this lease with this key: it ran out, was never given, or the job ended",
    fix="stop what runs for the job, hand in nothing more of it, and claim the next job",
)


def lease_of(request: Request, job_id: str, token: str) -> Lease:
    """Lease of a request with the key of its caller."""
    return Lease(job_id, token, caller_of(request).id)


def token_in_header(request: Request) -> str:
    """Lease in the header of a request without a JSON body."""
    values = request.headers.getlist(LEASE_HEADER)
    if len(values) == 1 and 0 < len(values[0]) <= MOST_CHARACTERS:
        return values[0]
    message = f"the header {LEASE_HEADER} is {'no lease' if values else 'missing'}"
    fix = f"send {LEASE_HEADER}: LEASE once, with the lease that the claim was answered with"
    raise WrongParameter(Problem(field="", code="wrong_lease", message=message, fix=fix))


def lease_lost() -> LeaseLost:
    """Refusal of an invalid lease, whatever the reason."""
    return LeaseLost(NOT_HELD)
