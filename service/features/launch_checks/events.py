"""Server-sent events of a launch check, numbered as the events of its job.

Whoever was cut off asks again with Last-Event-ID and is told what came after it; who asks late is told everything.
"""

import re
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from threading import Event

from fastapi import Request
from fastapi.responses import StreamingResponse

from service.api.credential_ends import while_authorized
from service.api.envelope import problem_of
from service.api.errors import WrongParameter
from service.api.openapi import EVENTS
from service.api.streams import AGAIN, ChangeFeed
from service.errors import NotFound, Problem
from service.features.launch_checks.launch_checks import NONE_SUCH, find_launch_check
from service.features.launch_checks.openapi import EVENT_NUMBER, LAST_EVENT_ID
from service.jobs.jobs import JobEvent, read_later_events
from service.store import ENDED, Engine, utc_text
from service.store.keys import ANYBODY
from service.validation.serialization import to_bytes

LOOK_SECONDS = 0.3
"""Time between two looks for events. Source: a choice; often enough for a bar that moves."""

WHOLE = "launch_check"
"""The last event: the whole answer."""

NUMBER = re.compile(EVENT_NUMBER)


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a launch check, up to now."""

    numbers: tuple[int, ...] = ()
    """Numbers of its events, in order."""
    events: tuple[bytes, ...] = ()
    """The same events as they are sent."""
    whole: bytes | None = None
    """The whole answer, once it has ended."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be told."""
        return self.whole is not None


def launch_check_feed(engine: Engine, longest: float, leaving: Event) -> ChangeFeed[Told]:
    """What happens to launch checks, for whoever listens."""
    return ChangeFeed(partial(_look, engine), LOOK_SECONDS, longest, leaving)


def last_event_of(request: Request) -> int:
    """The number of the last event that a caller was told."""
    said = request.headers.get(LAST_EVENT_ID, "")
    if said and NUMBER.fullmatch(said) is None:
        message = "the id is not that of an event of this stream, which are whole numbers"
        fix = "send the id of the last event that came, or leave it out"
        raise WrongParameter(Problem(field=LAST_EVENT_ID, code="not_an_event", message=message, fix=fix))
    return int(said or 0)


def stream_of(request: Request, check_id: str) -> StreamingResponse:
    """What happens to a launch check, until it ends or nobody listens."""
    events = while_authorized(request, _events(request, check_id, last_event_of(request)))
    return StreamingResponse(events, media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def _events(request: Request, check_id: str, after: int) -> AsyncGenerator[bytes, None]:
    looks: ChangeFeed[Told] = request.app.state.launch_check_feed
    yield b"retry: 2000\n\n"
    try:
        async with aclosing(looks.states(check_id)) as states:
            async for told in states:
                if told is None:
                    yield b": still here\n\n"
                    continue
                later = told.events[bisect_right(told.numbers, after) :]
                after = max(after, *told.numbers[-1:])
                last = () if told.whole is None else (_event(WHOLE, told.whole, after),)
                yield b"".join((*later, *last))
                if told.is_over:
                    return
        yield AGAIN
    except Exception as error:  # the status is sent already, so an event says what went wrong
        yield _event("problem", bytes(problem_of(request, error).body), after)


def _look(engine: Engine, known: Mapping[str, Told | None]) -> dict[str, Told | Exception]:
    """What is told of launch checks now; what is wrong with one of them ends no other's stream."""
    before = {check_id: told or Told() for check_id, told in known.items()}
    later = read_later_events(engine, {check_id: max(told.numbers, default=0) for check_id, told in before.items()})
    found: dict[str, Told | Exception] = {}
    for check_id, told in before.items():
        status, events = later.get(check_id, ("", []))
        try:
            whole = to_bytes(find_launch_check(engine, ANYBODY, check_id)) if status in ENDED else None
        except Exception as error:  # its listeners are told
            found[check_id] = error
            continue
        numbers = (*told.numbers, *(one.number for one in events))
        sent = (*told.events, *(_event(one.name, to_bytes(_said(one)), one.number) for one in events))
        is_same = told is known[check_id] and not events and whole is None
        found[check_id] = (told if is_same else Told(numbers, sent, whole)) if status else NotFound(NONE_SUCH)
    return found


def _said(event: JobEvent) -> dict[str, object]:
    return {"at": None if event.at is None else utc_text(event.at), "data": event.data}


def _event(name: str, document: bytes, number: int) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), document)
