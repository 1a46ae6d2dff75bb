"""How is a caller told how far a sweep is? As a stream of its states, until it ends."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.answers.sweeps import SweepAnswer
from service.api.callers import caller_of
from service.api.database import database_of
from service.api.envelope import refusal_of
from service.workflows.sweeps.kept import find_sweep
from service.workflows.wire import to_bytes

LOOK_SECONDS = 0.5
"""Time between two looks at how far a sweep is. Source: a choice; often enough for a bar that moves."""

SILENT_LOOKS = 30
"""Looks without news after which a comment keeps the connection. Source: a choice; proxies cut idle ones off after half
a minute or one."""

UNFINISHED = ("queued", "running")


async def events_of(request: Request, sweep_id: str) -> AsyncIterator[bytes]:
    """The states of a sweep, each when it differs from the one before.

    Args:
        request: the request; the stream ends when its reader is gone or the service is told to stop
        sweep_id: id of the sweep

    Returns:
        the stream

    Raises:
        NotFound: there is no such sweep
    """
    first = await _state(request, sweep_id)
    return _stream(request, first)


async def _stream(request: Request, state: SweepAnswer) -> AsyncIterator[bytes]:
    told, silent, leaving = b"", 0, request.app.state.leaving
    try:
        while True:
            document = to_bytes(state)
            is_over = state.status not in UNFINISHED
            if document != told or is_over:
                yield _event("ended" if is_over else "progress", state.rows.done, document)
                told, silent = document, 0
            if is_over or leaving.is_set() or await request.is_disconnected():
                return
            silent += 1
            if silent % SILENT_LOOKS == 0:
                yield b": still there\n\n"
            await asyncio.sleep(LOOK_SECONDS)
            state = await _state(request, state.id)
    except Exception as error:  # the status is sent already, so an event says what went wrong
        yield b"event: problem\ndata: " + bytes(refusal_of(request, error).body) + b"\n\n"


async def _state(request: Request, sweep_id: str) -> SweepAnswer:
    return await run_in_threadpool(find_sweep, database_of(request), caller_of(request), sweep_id)


def _event(name: str, number: int, document: bytes) -> bytes:
    return f"id: {number}\nevent: {name}\ndata: ".encode() + document + b"\n\n"
