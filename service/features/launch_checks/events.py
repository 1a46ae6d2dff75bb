"""Server-sent events of a launch check, numbered like the events of its job.

A caller who was cut off sends Last-Event-ID and gets the later events; without it, the stream begins with the first.
"""

import re
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse

from service.api.envelope import problem_of
from service.api.errors import WrongParameter
from service.api.openapi import EVENTS
from service.api.requests import header
from service.api.streams import AGAIN, ChangeFeed, while_authorized
from service.errors import NotFound, Problem
from service.features.launch_checks.launch_checks import UNKNOWN_CHECK, find_launch_check
from service.jobs.jobs import JobEvent, read_later_events
from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import UNRESTRICTED
from service.store.tables import ENDED
from service.validation.serialization import to_bytes

POLL_SECONDS = 0.3
"""Time between two reads of new events. Source: a choice; often enough for a bar that moves."""

WHOLE = "launch_check"
"""The last event: the whole answer."""

LAST_EVENT_ID = "Last-Event-ID"
EVENT_NUMBER = "[0-9]{1,9}"
"""Pattern of event numbers: every match fits a database integer, and no job has more events."""


@dataclass(frozen=True, slots=True)
class EventHistory:
    """Events of a launch check up to now."""

    numbers: tuple[int, ...] = ()
    """Numbers of its events, in order."""
    events: tuple[bytes, ...] = ()
    """The same events as server-sent bytes."""
    whole: bytes | None = None
    """The whole answer, once it has ended."""

    @property
    def is_over(self) -> bool:
        """Whether no event can follow."""
        return self.whole is not None


def launch_check_feed(engine: Engine, longest: float, leaving: Event) -> ChangeFeed[EventHistory]:
    """Feed of launch check events, shared by all streams."""
    return ChangeFeed(partial(_read_events, engine), POLL_SECONDS, longest, leaving)


LastEventHeader = Annotated[
    Any,
    *header(
        LAST_EVENT_ID,
        {"type": "string", "pattern": f"^{EVENT_NUMBER}$"},
        "Id of the last event that came; from the first one on where absent.",
    ),
]


async def last_event_of(request: Request, sent: LastEventHeader = None) -> int:  # noqa: ARG001 - describes the header
    """Last-Event-ID of a request; 0 without it."""
    last = request.headers.get(LAST_EVENT_ID, "")
    if last and re.fullmatch(EVENT_NUMBER, last) is None:
        message = "the id is not that of an event of this stream, which are whole numbers"
        fix = "send the id of the last event that came, or leave it out"
        raise WrongParameter(Problem(field=LAST_EVENT_ID, code="not_an_event", message=message, fix=fix))
    return int(last or 0)


LastEvent = Annotated[int, Depends(last_event_of)]
"""Last-Event-ID, or 0."""


def stream_of(request: Request, check_id: str, after: int) -> StreamingResponse:
    """Stream the later events of a launch check until it ends or the client hangs up."""
    events = while_authorized(request, _events(request, check_id, after))
    return StreamingResponse(events, media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def _events(request: Request, check_id: str, after: int) -> AsyncGenerator[bytes, None]:
    feed: ChangeFeed[EventHistory] = request.app.state.launch_check_feed
    yield b"retry: 2000\n\n"
    try:
        async with aclosing(feed.states(check_id)) as states:
            async for history in states:
                if history is None:
                    yield b": still here\n\n"
                    continue
                later = history.events[bisect_right(history.numbers, after) :]
                after = max(after, *history.numbers[-1:])
                last = () if history.whole is None else (_event(WHOLE, history.whole, after),)
                yield b"".join((*later, *last))
                if history.is_over:
                    return
        yield AGAIN
    except Exception as error:  # the status is sent already, so an event says what went wrong
        yield _event("problem", bytes(problem_of(request, error).body), after)


def _read_events(engine: Engine, known: Mapping[str, EventHistory | None]) -> dict[str, EventHistory | Exception]:
    """Read new events of launch checks; an error of one check ends only its own streams."""
    before = {check_id: history or EventHistory() for check_id, history in known.items()}
    later = read_later_events(
        engine, {check_id: max(history.numbers, default=0) for check_id, history in before.items()}
    )
    result: dict[str, EventHistory | Exception] = {}
    for check_id, history in before.items():
        status, events = later.get(check_id, ("", []))
        try:
            whole = to_bytes(find_launch_check(engine, UNRESTRICTED, check_id)) if status in ENDED else None
        except Exception as error:  # goes to the streams of this check
            result[check_id] = error
            continue
        numbers = (*history.numbers, *(one.number for one in events))
        sent = (*history.events, *(_job_event(one) for one in events))
        is_same = history is known[check_id] and not events and whole is None
        result[check_id] = (
            (history if is_same else EventHistory(numbers, sent, whole)) if status else NotFound(UNKNOWN_CHECK)
        )
    return result


def _event(name: str, document: bytes, number: int) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), document)


def _job_event(event: JobEvent) -> bytes:
    moment = None if event.at is None else utc_text(event.at)
    return _event(event.name, to_bytes({"at": moment, "data": event.data}), event.number)
