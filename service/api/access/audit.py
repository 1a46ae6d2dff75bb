"""Audit entries of requests, and of denied changes.

A change writes its entry in its own transaction. A denied change has none: a background thread writes its entry a
moment later, so that no rejection waits for the database.
"""

import re
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import Event, Lock

from fastapi import Request
from fastapi.responses import Response

from service.errors import Unreachable
from service.store import Engine
from service.store.keys import Caller
from service.store.requests import AuditedCall, AuditEntry, AuditOutcome, set_audited_call, store_entries

AUDITED_CALL = "audited_call"
"""Name of the audited call in the request state."""

OUTCOME_OF_STATUS: Mapping[int, AuditOutcome] = {403: "forbidden", 404: "not_found", 409: "conflict", 412: "stale"}
"""Audited rejections by status: those about permissions and state, not malformed requests."""

MOST_WAITING = 10_000
"""Queued entries while the database does not answer; beyond that the oldest are dropped. Source: a choice."""
LONGEST_SECONDS = 1.0
"""Longest wait for another thread's write: readers of the log do not queue up behind a slow database."""

OBJECT = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
"""Object names that the log stores; others from a path are omitted."""


def begin_audit(request: Request, caller: Caller) -> None:
    """Set the actor of what this request writes from now on."""
    state = request.scope["state"]
    call = AuditedCall(
        caller=caller.id or None,
        owner=caller.owner,
        operation=request.scope["route"].unique_id,
        request_id=state["request_id"],
    )
    state[AUDITED_CALL] = call
    set_audited_call(call)


class DeniedChanges:
    """Denied changes that wait to be written."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._waiting: deque[AuditEntry] = deque(maxlen=MOST_WAITING)
        self._writing = Lock()
        self.noted = Event()
        """Set where something waits to be written."""

    def note(self, request: Request, response: Response) -> None:
        """Queue the entry of a denied change by an authenticated caller."""
        call: AuditedCall | None = request.scope["state"].get(AUDITED_CALL)
        outcome = OUTCOME_OF_STATUS.get(response.status_code)
        if call is not None and outcome is not None and self._engine is not None:
            name = "/".join(map(str, request.path_params.values()))
            known = name if OBJECT.fullmatch(name) else None
            self._waiting.append(AuditEntry(call=call, at=datetime.now(UTC), object=known, outcome=outcome))
            self.noted.set()

    def write(self) -> None:
        """Write the queued entries; keep them queued where the database fails."""
        if not self._writing.acquire(timeout=LONGEST_SECONDS):
            return  # another thread writes them to a slow database
        try:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if self._engine is None or not batch:
                return
            try:
                store_entries(self._engine, batch)
            except Unreachable:
                self._waiting.extendleft(reversed(batch))
                raise
        finally:
            self._writing.release()
