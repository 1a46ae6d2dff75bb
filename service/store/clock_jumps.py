"""Jumps of clocks: one that is set takes no job from a worker that is still heard of, and makes nothing old.

Leases are moments of the database's clock. Set forward by an hour, it ends all of them at once; set back, it keeps the
job of a lost worker for an hour longer, and a job that waits to be tried again for as long. So each look compares how
far that clock went with how much time went by, and where the two disagree every lease starts anew. Moments that no
clock of today would name are mended at every look: the clock may have gone and come back between two of them.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import NamedTuple

from sqlalchemy import Engine, and_, or_, select, update

from service.errors import Unreachable
from service.store.database_clock import later, now
from service.store.engine import answering, reading, writing
from service.store.job_ends import LONGEST_WAIT_SECONDS, is_overtime, reap_jobs
from service.store.job_tables import JOBS
from service.store.jobs import Also
from service.store.retention import database_time

MOST_JUMP_SECONDS = 5.0
"""Difference that is left alone, or a quarter of a lease where that is shorter. Source: a choice; clocks that are
adjusted in small steps stay far below it."""

LONGEST_LEASE_SECONDS = 3600.0
"""Longest lease that any replica may be set to give."""


class SlowerClock:
    """The present by the slower of two clocks: the database's, and the time that went by since this process started.

    A clock that is set forward by mistake would make everything old at once.

    Args:
        engine: the database
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._started, self._started_at = monotonic(), datetime.now(UTC)

    def present(self) -> datetime:
        """The present.

        Returns:
            the moment, in UTC

        Raises:
            Unreachable: the database does not answer
        """
        return min(database_time(self._engine), self._started_at + timedelta(seconds=monotonic() - self._started))


class _Look(NamedTuple):
    """The database's clock, read between two moments of this process's own."""

    begun: float
    moment: datetime
    ended: float


class LeaseExpiry:
    """Takes jobs from workers that are not heard of any more, but not because a clock was set.

    Args:
        engine: the database
        lease_seconds: how long a lease holds [second]
        also: what else to write for each job that ends with it
        clock: seconds from any start, which nothing sets
    """

    def __init__(
        self, engine: Engine, lease_seconds: float, also: Also | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._engine, self._lease_seconds, self._also, self._clock = engine, lease_seconds, also, clock
        self._last: _Look | None = None
        with suppress(Unreachable):
            self._last = self._read()

    def look(self) -> int:
        """Take what is abandoned now; after a jump nothing is, and every lease starts anew.

        Returns:
            how many jobs were taken

        Raises:
            Unreachable: the database does not answer
        """
        mend_moments(self._engine, self._lease_seconds)
        found = self._read()
        if self._last is not None and self._is_jump(self._last, found):
            renew_leases(self._engine, self._lease_seconds)
            self._last = self._read()
            return 0
        self._last = found
        return reap_jobs(self._engine, self._also, found.moment)

    def _read(self) -> _Look:
        begun = self._clock()
        return _Look(begun, database_time(self._engine), self._clock())

    def _is_jump(self, last: _Look, found: _Look) -> bool:
        """Whether the database's clock went further, or less far, than the time that can have gone by."""
        most = min(MOST_JUMP_SECONDS, self._lease_seconds / 4)
        went_seconds = (found.moment - last.moment).total_seconds()
        return not found.begun - last.ended - most <= went_seconds <= found.ended - last.begun + most


def renew_leases(engine: Engine, lease_seconds: float) -> None:
    """Start every lease anew, and the time of every job that the present clock takes to be over it.

    Args:
        engine: the database
        lease_seconds: how long a lease holds from now on [second]

    Raises:
        Unreachable: the database does not answer
    """
    is_running = JOBS.c.status == "running"
    with answering(), writing(engine) as connection:
        connection.execute(update(JOBS).where(is_running, is_overtime()).values(started_at=now()))
        connection.execute(update(JOBS).where(is_running).values(lease_until=later(lease_seconds)))


def mend_moments(engine: Engine, lease_seconds: float) -> None:
    """Let no job wait for a moment, or be held until one, that lies further ahead than the present clock would name.

    Args:
        engine: the database
        lease_seconds: how long a lease holds that would end too late [second]

    Raises:
        Unreachable: the database does not answer
    """
    is_running, is_queued = JOBS.c.status == "running", JOBS.c.status == "queued"
    odd = {
        "started_at": (and_(is_running, JOBS.c.started_at > later(MOST_JUMP_SECONDS)), now()),
        "lease_until": (and_(is_running, JOBS.c.lease_until > later(LONGEST_LEASE_SECONDS)), later(lease_seconds)),
        "available_at": (and_(is_queued, JOBS.c.available_at > later(LONGEST_WAIT_SECONDS + MOST_JUMP_SECONDS)), now()),
    }
    is_odd = select(JOBS.c.id).where(or_(*(condition for condition, _ in odd.values()))).limit(1)
    with answering(), reading(engine) as connection:
        if connection.execute(is_odd).first() is None:
            return
    with answering(), writing(engine) as connection:
        for name, (condition, moment) in odd.items():
            connection.execute(update(JOBS).where(condition).values({name: moment}))
