"""When is it time to remove what is old? On a thread of its own, a little at a time, by the slower of two clocks.

Nothing is taken to be older than the database says, nor older than it was when the process started and the time that
went by since.
"""

from threading import Event

from service.settings import Settings
from service.store import Engine, Keeping, SlowerClock, forget_old

PAUSE_SECONDS = 0.05
"""Time for others to write between two removals. Source: a choice."""


class Retention:
    """Removes what was kept for long enough.

    Args:
        engine: the database
        settings: for how long each is kept
        stop: ends a removal that is under way
    """

    def __init__(self, engine: Engine, settings: Settings, stop: Event) -> None:
        self._engine, self._stop = engine, stop
        self._keeping = Keeping(
            jobs_days=settings.keep_jobs_days,
            job_files_days=settings.keep_job_files_days,
            measurements_days=settings.keep_measurements_days,
            answers_days=settings.keep_answers_days,
            audit_days=settings.keep_audit_days,
        )
        self._clock = SlowerClock(engine)

    def look(self) -> dict[str, int]:
        """Remove what is old now.

        Returns:
            how many of each kind were removed

        Raises:
            Unreachable: the database does not answer
        """
        return forget_old(self._engine, self._keeping, self._clock.present(), self._pause)

    def _pause(self) -> bool:
        return self._stop.wait(PAUSE_SECONDS)
