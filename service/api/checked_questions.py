"""How do the questions of checks reach the database? On a thread of their own: no scheduler waits for it."""

import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event, Lock, Thread

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from service.errors import TraincostError
from service.store import CheckedQuestion, Engine, keep_checked_questions

WRITE_SECONDS = 0.5
"""Time between two writes. Source: a choice; whoever reads a job's comment is slower."""
MOST_WAITING = 10_000
"""Questions that wait while the database does not answer; of more, the oldest are let go. Source: a choice; 20 MB."""
LEAVE_SECONDS = 2.0
"""Longest wait for the last write when the process stops."""

log = logging.getLogger(__name__)


class CheckedQuestions:
    """Questions that wait to be kept.

    Args:
        engine: the database; None where there is none, so that nothing is kept
    """

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._waiting: deque[CheckedQuestion] = deque(maxlen=MOST_WAITING)
        self._lock = Lock()

    def keep(self, question: CheckedQuestion) -> None:
        """Have a question kept soon.

        Args:
            question: the question of a check
        """
        self._waiting.append(question)

    def write(self) -> None:
        """Write what waits; what could not be written waits on.

        Raises:
            Unreachable: the database does not answer
        """
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if self._engine is None or not batch:
                return
            try:
                keep_checked_questions(self._engine, batch)
            except TraincostError:
                room = MOST_WAITING - len(self._waiting)
                self._waiting.extendleft(reversed(batch[max(0, len(batch) - room) :]))
                raise


@asynccontextmanager
async def kept_checks(app: FastAPI) -> AsyncIterator[None]:
    """While the application runs, and once more at its end, the questions of checks are written.

    Args:
        app: the application

    Yields:
        nothing; a thread writes meanwhile
    """
    stop = Event()
    thread = Thread(target=_write_again, args=(app.state.checked_questions, stop), name="checks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        await run_in_threadpool(thread.join, LEAVE_SECONDS)


def _write_again(questions: CheckedQuestions, stop: Event) -> None:
    """Write again and again, the last time once it stops; what fails is said once, until it works again."""
    failing, is_last = False, False
    while not is_last:
        is_last = stop.wait(WRITE_SECONDS)
        try:
            questions.write()
        except Exception as error:  # whatever it is, checks go on, and the next write may succeed
            if not failing:
                log.warning("the questions of checks are not kept: %s", type(error).__name__)
            failing = True
        else:
            failing = False
