"""How long do ranks take to exchange bytes? NCCL between GPUs, gloo between processes of a processor.

A size is the whole tensor: what every rank sums, the gathered result, what is scattered; of all_to_all and send it is
what one rank holds. Ranks begin each repeat together, and the slowest one's time counts.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.calibration.records import EXCHANGED_ERROR_FRACTION, Measurement
from service.worker.caches import Caches
from service.worker.exchanges import BUS_FACTORS, Exchange, checked_places, exchange_of
from service.worker.group import Group, any_failed, joined
from service.worker.left_out import NOT_IN_TIME, LeftOut, left_out_row, no_memory, why_left_out, wrong_result
from service.worker.memory_errors import is_out_of_memory
from service.worker.operands import error_fraction
from service.worker.probing import CannotRun, Found, Told
from service.worker.ranks import nodes_of
from service.worker.timing import REPEATS, WARM_UPS, measurement

SLOWEST_BYTES_PER_S = 1e8
"""Bytes that ranks exchange a second on any machine: a small size before a large one would make it look too slow.
Source: a choice, a network of 1 Gbit/s."""


@dataclass(slots=True)
class Course:
    """How the probe went so far."""

    group: Group
    """The ranks."""
    caches: Caches
    """Takes the time."""
    repeats: int
    """How often each is measured."""
    measurements: list[Measurement] = field(default_factory=list)
    """What was measured."""
    left_out: list[dict[str, Any]] = field(default_factory=list)
    """What was not, with the reason."""
    byte_seconds: float = 0.0
    """Time of one run over its size, of the last operation."""


def run(parameters: Mapping[str, Any], told: Told) -> Found:
    """Time collectives.

    Args:
        parameters: `operations`, `sizes_bytes`; `repeats`
        told: what the probe was told

    Returns:
        seconds of each operation and size, and bus bandwidth as nccl-tests counts it
    """
    if told.ranks == 1:
        raise CannotRun("one rank has nobody to exchange with; ask for at least two, on a machine with as many GPUs")
    asked = [(name, int(size)) for size in sorted(parameters["sizes_bytes"]) for name in parameters["operations"]]
    unknown = sorted({name for name, _ in asked} - BUS_FACTORS.keys())
    if unknown:
        raise CannotRun(f"no collective {', '.join(unknown)}; there are {', '.join(BUS_FACTORS)}")
    with joined(told) as group:
        course = Course(group=group, caches=Caches(told.device), repeats=int(parameters.get("repeats", REPEATS)))
        for number, (operation, size) in enumerate(asked, start=1):
            _one(operation, size, course, share=1 / (len(asked) - number + 1))
            told.report(number / len(asked), f"{operation} of {size} bytes")
    return Found(
        measurements=tuple(course.measurements),
        summary={"left_out": course.left_out},
        reason=why_left_out(course.left_out),
    )


def _one(operation: str, size_bytes: int, course: Course, share: float) -> None:
    """Measure one operation of one size in its share of the time that is left, or say why not.

    All ranks decide alike, or they would wait for each other.
    """
    group = course.group
    ranks = group.told.ranks
    where = {"ranks": ranks, "nodes": nodes_of(ranks, os.environ), "backend": group.backend}
    shape = {"size_bytes": size_bytes, **where}
    if group.left_seconds() < (WARM_UPS + 1) * size_bytes * min(course.byte_seconds, 1 / SLOWEST_BYTES_PER_S):
        _leave_out(course, operation, shape, NOT_IN_TIME)
        return
    exchange = _built(operation, size_bytes, course)
    if exchange is None:
        _leave_out(course, operation, shape, no_memory("some device"))
        return
    error, run_seconds = _warmed_up(exchange, course)
    course.byte_seconds = run_seconds / size_bytes
    if not error <= EXCHANGED_ERROR_FRACTION:
        _leave_out(course, operation, shape, wrong_result(error))
        return
    count = max(1, min(course.repeats, int(share * group.left_seconds() / run_seconds)))
    seconds = group.largest(*(_seconds(exchange, course) for _ in range(count)))
    bus_bytes = size_bytes * BUS_FACTORS[operation](ranks)
    rates = [bus_bytes / one for one in seconds]
    course.measurements.append(measurement(operation, shape, "seconds", seconds, error))
    course.measurements.append(measurement(operation, shape, "bytes_per_s", rates, error))


def _leave_out(course: Course, operation: str, shape: Mapping[str, Any], why: LeftOut) -> None:
    course.left_out.append(left_out_row(operation, shape, why))


def _built(operation: str, size_bytes: int, course: Course) -> Exchange | None:
    """The exchange; None where any rank has no memory for it."""
    exchange, errors = None, []
    try:
        exchange = exchange_of(operation, size_bytes, course.group)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        errors.append(error)
        course.caches.release()
    return None if any_failed(course.group, errors) else exchange


def _warmed_up(exchange: Exchange, course: Course) -> tuple[float, float]:
    """Error of the first result, and time of the last run, of the ranks that are worst off."""
    import torch

    error = begun = 0.0
    for number in range(WARM_UPS):
        begun = time.monotonic()
        exchange.fill()
        exchange.run()
        course.caches.wait()
        if number == 0:
            places = torch.tensor(checked_places(exchange))
            error = error_fraction(exchange.result[places.to(exchange.result.device)].cpu(), exchange.exact(places))
    worst, seconds = course.group.largest(min(error, 1e9), time.monotonic() - begun)
    return worst, seconds


def _seconds(exchange: Exchange, course: Course) -> float:
    """Time of one run that all ranks begin together."""
    exchange.fill()
    return course.caches.cold_seconds(exchange.run, before=course.group.meet)
