"""Audit entries of requests, and of changes that were refused.

What is done is noted in its own transaction, by whatever writes it. What is refused wrote nothing: it is noted a moment
later, by a thread of its own, so that no refusal waits for the database.
"""

import re
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import Event, Lock

from fastapi import Request
from fastapi.responses import Response

from service.errors import Unreachable
from service.store import AuditEntry, AuditOutcome, Deed, Engine, act_as, keep_entries
from service.store.keys import Caller

ACTOR = "deed"
"""Name of the change in the state of the request that makes it."""

OUTCOME_OF_STATUS: Mapping[int, AuditOutcome] = {403: "forbidden", 404: "not_found", 409: "conflict", 412: "stale"}
"""By status, refusals that say something of who may change what; others say that a request was not understood."""

MOST_WAITING = 10_000
"""Refusals that wait while the database does not answer; of more, the oldest are let go. Source: a choice."""

LONGEST_SECONDS = 1.0
"""Longest wait while another thread writes: readers of the log do not queue up behind a database that is slow."""

OBJECT = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
"""Names of objects as the log holds them: what else a caller writes into a path is left out."""


def begin_audit(request: Request, caller: Caller) -> None:
    """Say who answers for what is written from now on in this request."""
    state = request.scope["state"]
    deed = Deed(
        caller=caller.id or None,
        owner=caller.owner,
        operation=request.scope["route"].operation_id,
        request_id=state["request_id"],
    )
    state[ACTOR] = deed
    act_as(deed)


class DeniedChanges:
    """Changes that were refused and wait to be noted."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._waiting: deque[AuditEntry] = deque(maxlen=MOST_WAITING)
        self._writing = Lock()
        self.noted = Event()
        """Set where something waits to be written."""

    def note(self, request: Request, response: Response) -> None:
        """Have a refusal noted, if it is one of a change by somebody who is known."""
        deed: Deed | None = request.scope["state"].get(ACTOR)
        outcome = OUTCOME_OF_STATUS.get(response.status_code)
        if deed is not None and outcome is not None and self._engine is not None:
            named = "/".join(map(str, request.path_params.values()))
            known = named if OBJECT.fullmatch(named) else None
            self._waiting.append(AuditEntry(deed=deed, at=datetime.now(UTC), object=known, outcome=outcome))
            self.noted.set()

    def write(self) -> None:
        """Write what waits; what could not be written waits on."""
        if not self._writing.acquire(timeout=LONGEST_SECONDS):
            return  # it is being written; the database is slow
        try:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if self._engine is None or not batch:
                return
            try:
                keep_entries(self._engine, batch)
            except Unreachable:
                self._waiting.extendleft(reversed(batch))
                raise
        finally:
            self._writing.release()
