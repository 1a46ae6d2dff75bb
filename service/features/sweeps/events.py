"""Server-sent events of a sweep: its state, until it ends."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from threading import Event

from fastapi import Request

from service.answers.sweeps import SweepAnswer
from service.api.envelope import problem_of
from service.api.streams import AGAIN, ChangeFeed
from service.features.sweeps.sweeps import sweeps_as_they_are, unknown_sweep
from service.store import Engine
from service.validation.serialization import to_bytes

LOOK_SECONDS = 0.5
"""Time between two looks at how far sweeps are. Source: a choice; often enough for a bar that moves."""

UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a sweep, as it is now."""

    document: bytes
    """The sweep."""
    rows: int
    """How many of its rows are done."""
    is_over: bool
    """Whether it has ended."""


def sweep_feed(engine: Engine, longest: float, leaving: Event) -> ChangeFeed[Told]:
    """How far sweeps are, for whoever listens."""
    return ChangeFeed(partial(_look, engine), LOOK_SECONDS, longest, leaving)


async def events_of(request: Request, sweep_id: str) -> AsyncGenerator[bytes, None]:
    """The states of a sweep, each when it differs from the one before."""
    looks: ChangeFeed[Told] = request.app.state.sweep_feed
    try:
        async with aclosing(looks.states(sweep_id)) as states:
            async for told in states:
                yield b": still there\n\n" if told is None else _event(told)
                if told is not None and told.is_over:
                    return
        yield AGAIN
    except Exception as error:  # the status is sent already, so an event says what went wrong
        yield b"event: problem\ndata: " + bytes(problem_of(request, error).body) + b"\n\n"


def _look(engine: Engine, known: Mapping[str, Told | None]) -> dict[str, Told | Exception]:
    found = sweeps_as_they_are(engine, list(known))
    return {sweep_id: _told(found[sweep_id]) if sweep_id in found else unknown_sweep() for sweep_id in known}


def _told(sweep: SweepAnswer) -> Told:
    return Told(to_bytes(sweep), sweep.rows.done, sweep.status not in UNFINISHED)


def _event(told: Told) -> bytes:
    name = b"ended" if told.is_over else b"progress"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (told.rows, name, told.document)
