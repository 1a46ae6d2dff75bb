"""How is somebody told what happens to a launch check, as it happens? Server-sent events, numbered as the job's events.

Whoever was cut off asks again with Last-Event-ID and is told what came after it; who asks late is told everything.
"""

import re
from asyncio import sleep
from collections.abc import AsyncIterator
from threading import Event

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from service.api.callers import caller_of
from service.api.envelope import refusal_of
from service.api.launch_check_schemas import EVENT_NUMBER, EVENTS, LAST_EVENT_ID
from service.api.problems import WrongParameter
from service.errors import Problem
from service.store import ENDED, Engine, JobEvent, utc_text
from service.workflows.launch_checks.launch_checks import events_after, find_launch_check
from service.workflows.wire import to_bytes

LOOK_SECONDS = 0.3
"""Time between two looks for events. Source: a choice; often enough for a bar that moves."""

QUIET_SECONDS = 15.0
"""Longest time without a byte: proxies cut silent connections. Source: HTML standard, section 9.2.7, 15 seconds."""

WHOLE = "launch_check"
"""The last event: the whole answer."""

NUMBER = re.compile(EVENT_NUMBER)


def last_event_of(request: Request) -> int:
    """The number of the last event that a caller was told.

    Args:
        request: the request

    Returns:
        what Last-Event-ID says; 0 where it is absent or empty

    Raises:
        WrongParameter: it is no number of an event
    """
    said = request.headers.get(LAST_EVENT_ID, "")
    if said and NUMBER.fullmatch(said) is None:
        message = "the id is not that of an event of this stream, which are whole numbers"
        fix = "send the id of the last event that came, or leave it out"
        raise WrongParameter(Problem(field=LAST_EVENT_ID, code="not_an_event", message=message, fix=fix))
    return int(said or 0)


def stream_of(request: Request, engine: Engine, check_id: str) -> StreamingResponse:
    """What happens to a launch check, until it ends or nobody listens.

    Args:
        request: the request
        engine: the database
        check_id: id of a launch check that is there

    Returns:
        the stream
    """
    events = _events(request, engine, check_id, last_event_of(request))
    return StreamingResponse(events, media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def _events(request: Request, engine: Engine, check_id: str, after: int) -> AsyncIterator[bytes]:
    leaving: Event = request.app.state.leaving
    quiet = 0.0
    yield b"retry: 2000\n\n"
    try:
        while not leaving.is_set() and not await request.is_disconnected():
            found, status = await run_in_threadpool(events_after, engine, check_id, after)
            for one in found:
                yield _event(one.name, to_bytes(_said(one)), one.number)
                after = one.number
            if status in ENDED and not found:
                whole = await run_in_threadpool(find_launch_check, engine, caller_of(request), check_id)
                yield _event(WHOLE, to_bytes(whole), after)
                return
            quiet = 0.0 if found else quiet + LOOK_SECONDS
            if quiet >= QUIET_SECONDS:
                quiet = 0.0
                yield b": still here\n\n"
            await sleep(0.0 if status in ENDED else LOOK_SECONDS)
    except Exception as error:  # the status is sent already, so an event says what went wrong
        yield _event("problem", bytes(refusal_of(request, error).body), after)


def _said(event: JobEvent) -> dict[str, object]:
    return {"at": None if event.at is None else utc_text(event.at), "data": event.data}


def _event(name: str, document: bytes, number: int) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), document)
