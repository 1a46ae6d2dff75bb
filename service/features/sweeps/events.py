"""Server-sent events of a sweep: its state until it ends."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from threading import Event

from fastapi import Request

from service.answers.sweeps import SweepAnswer
from service.api.envelope import problem_of
from service.api.streams import AGAIN, ChangeFeed
from service.features.sweeps.sweeps import current_sweeps, unknown_sweep
from service.store import Engine
from service.validation.serialization import to_bytes

POLL_SECONDS = 0.5
"""Interval between reads of the state. Source: a choice; short enough for a progress bar."""

UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class SweepState:
    """Current state of a sweep."""

    document: bytes
    """The sweep as JSON."""
    rows: int
    """Number of its finished rows."""
    is_over: bool
    """Whether it has ended."""


def sweep_feed(engine: Engine, longest: float, leaving: Event) -> ChangeFeed[SweepState]:
    """Feed of sweep states, shared by all streams."""
    return ChangeFeed(partial(_read_states, engine), POLL_SECONDS, longest, leaving)


async def events_of(request: Request, sweep_id: str) -> AsyncGenerator[bytes, None]:
    """Events of a sweep, one for each change of its state."""
    feed: ChangeFeed[SweepState] = request.app.state.sweep_feed
    try:
        async with aclosing(feed.states(sweep_id)) as states:
            async for state in states:
                yield b": still there\n\n" if state is None else _event(state)
                if state is not None and state.is_over:
                    return
        yield AGAIN
    except Exception as error:  # the status is sent already, so an event reports the error
        yield b"event: problem\ndata: " + bytes(problem_of(request, error).body) + b"\n\n"


def _read_states(engine: Engine, known: Mapping[str, SweepState | None]) -> dict[str, SweepState | Exception]:
    sweeps = current_sweeps(engine, list(known))
    return {sweep_id: _state_of(sweeps[sweep_id]) if sweep_id in sweeps else unknown_sweep() for sweep_id in known}


def _state_of(sweep: SweepAnswer) -> SweepState:
    return SweepState(to_bytes(sweep), sweep.rows.done, sweep.status not in UNFINISHED)


def _event(state: SweepState) -> bytes:
    name = b"ended" if state.is_over else b"progress"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (state.rows, name, state.document)
