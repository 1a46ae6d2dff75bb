"""Seconds of collectives: NCCL between GPUs, gloo between processes on a CPU."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch

from service.calibration.records import COLLECTIVES, EXCHANGED_ERROR_FRACTION, Measurement, bus_fraction
from service.worker import probing

NUMBER_BYTES = 4

TILE = 65_537
"""Random numbers of a rank. A prime, so that parts of equal length differ."""
MOST_COMPARED = 4_096
"""Numbers of a result to compare. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One operation of one size on one rank."""

    run: Callable[[], Any]
    result: Any
    exact: Callable[[Any], Any]
    """Expected values at some positions of the result, in double precision."""
    fill: Callable[[], Any]
    """Fills the buffer with this rank's numbers, where the operation overwrites them."""


@cache
def _random_numbers(rank: int) -> Any:
    return torch.randn(TILE, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def _numbers_at(rank: int, positions: Any) -> Any:
    return _random_numbers(rank)[positions % TILE]


def _exchange(operation: str, part: int, group: probing.Group) -> Exchange:
    """An operation with `part` numbers for each pair of ranks: its buffers, its call, and its expected result."""
    rank, ranks, device, distributed = group.context.rank, group.context.ranks, group.context.device, group.distributed
    count = part if operation == "all_gather" else part * ranks
    own = torch.narrow(_random_numbers(rank).float().to(device).repeat(count // TILE + 1), 0, 0, count)
    results = part if operation == "reduce_scatter" else part * ranks
    result = torch.empty(results, dtype=torch.float32, device=device)
    gather = group.function_named("all_gather_single", "all_gather_into_tensor")
    scatter = group.function_named("reduce_scatter_single", "reduce_scatter_tensor")
    before, after = (rank - 1) % ranks, (rank + 1) % ranks

    def send() -> None:
        """Send to the next rank and receive from the one before, as stages of a pipeline do."""
        both = [distributed.P2POp(distributed.isend, own, after), distributed.P2POp(distributed.irecv, result, before)]
        for work in distributed.batch_isend_irecv(both):
            work.wait()

    def summed(positions: Any) -> Any:
        return sum(_numbers_at(one, positions) for one in range(ranks))

    def joined_parts(positions: Any, first: int) -> Any:
        """One part of each rank, from index `first` on, concatenated."""
        return sum(_numbers_at(one, first + positions % part) * (positions // part == one) for one in range(ranks))

    operations: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "all_reduce": (lambda: distributed.all_reduce(result), summed),
        "all_gather": (lambda: gather(result, own), lambda positions: joined_parts(positions, 0)),
        "reduce_scatter": (lambda: scatter(result, own), lambda positions: summed(rank * part + positions)),
        "all_to_all": (
            lambda: distributed.all_to_all_single(result, own),
            lambda positions: joined_parts(positions, rank * part),
        ),
        "send": (send, partial(_numbers_at, before)),
    }
    run, exact = operations[operation]
    fill = partial(result.copy_, own) if operation == "all_reduce" else lambda: None
    return Exchange(run=run, result=result, exact=exact, fill=fill)


SLOWEST_BYTES_PER_S = 1e8
"""Lower bound of the bandwidth on any machine. Source: a choice, a network of 1 Gbit/s."""


@dataclass(slots=True)
class RankTiming:
    """Progress and measurements of the probe on one rank."""

    group: probing.Group
    caches: probing.Caches
    repeats: int
    measurements: list[Measurement] = field(default_factory=list)
    byte_seconds: float = 0.0
    """Seconds of one run over its size, for the last operation."""


def run(parameters: Mapping[str, Any], context: probing.ProbeContext) -> probing.ProbeResult:
    if context.ranks == 1:
        raise probing.CannotRun("a collective needs two or more ranks; request them on a machine with as many GPUs")
    cases = [(name, int(size)) for size in sorted(parameters["sizes_bytes"]) for name in parameters["operations"]]
    unknown = sorted({name for name, _ in cases} - set(COLLECTIVES))
    if unknown:
        raise probing.CannotRun(f"no collective {', '.join(unknown)}; there are {', '.join(COLLECTIVES)}")
    nodes = probing.nodes_of(context.ranks, os.environ)
    left_out: list[dict[str, Any]] = []
    with probing.process_group(context) as group:
        timing = RankTiming(
            group=group, caches=probing.Caches(context.device), repeats=int(parameters.get("repeats", probing.REPEATS))
        )
        for number, (operation, size) in enumerate(cases, start=1):
            shape = {"size_bytes": size, "ranks": context.ranks, "nodes": nodes, "backend": group.backend}
            try:
                _measure(operation, shape, timing, fraction=1 / (len(cases) - number + 1))
            except probing.MissingMeasurement as missing:
                left_out.append(missing.row(operation, shape))
            context.report(number / len(cases), f"{operation} of {size} bytes")
    return probing.ProbeResult(
        measurements=tuple(timing.measurements),
        summary={"left_out": left_out},
        reason=probing.left_out_reason(left_out),
    )


def _measure(operation: str, shape: Mapping[str, Any], timing: RankTiming, fraction: float) -> None:
    group, size_bytes = timing.group, shape["size_bytes"]
    if group.left_seconds() < (probing.WARM_UPS + 1) * size_bytes * min(timing.byte_seconds, 1 / SLOWEST_BYTES_PER_S):
        raise probing.MissingMeasurement("no_time", probing.NO_TIME)
    exchange = _built(operation, size_bytes, timing)
    error, run_seconds = _warmed_up(exchange, timing)
    timing.byte_seconds = run_seconds / size_bytes
    probing.refuse_wrong(error, EXCHANGED_ERROR_FRACTION)
    count = max(1, min(timing.repeats, int(fraction * group.left_seconds() / run_seconds)))
    seconds = []
    for _ in range(count):
        exchange.fill()
        seconds.append(timing.caches.cold_seconds(exchange.run, before=group.wait_for_all))
    seconds = group.largest(*seconds)  # of ranks that begin each run together
    bus_bytes = size_bytes * bus_fraction(operation, group.context.ranks)
    rates = [bus_bytes / one for one in seconds]
    timing.measurements.append(probing.measurement(operation, shape, "seconds", seconds, error))
    timing.measurements.append(probing.measurement(operation, shape, "bytes_per_s", rates, error))


def _built(operation: str, size_bytes: int, timing: RankTiming) -> Exchange:
    """The exchange; raises MissingMeasurement if any rank has no memory for it."""
    exchange, part = None, -(-size_bytes // (NUMBER_BYTES * timing.group.context.ranks))
    try:
        exchange = _exchange(operation, part, timing.group)
    except (RuntimeError, MemoryError) as error:
        if not probing.is_out_of_memory(error):
            raise
        timing.caches.release()
    is_missing = timing.group.largest(float(exchange is None))[0]
    if exchange is None or is_missing:
        raise probing.no_memory("some device")
    return exchange


def _warmed_up(exchange: Exchange, timing: RankTiming) -> tuple[float, float]:
    """The largest error of the first result, and the longest time of the last run, over all ranks."""
    error = begun = 0.0
    for number in range(probing.WARM_UPS):
        begun = time.monotonic()
        exchange.fill()
        exchange.run()
        timing.caches.wait()
        if number == 0:
            indices = torch.tensor(probing.spread(exchange.result.numel(), MOST_COMPARED))
            error = probing.error_fraction(
                exchange.result[indices.to(exchange.result.device)].cpu(), exchange.exact(indices)
            )
    worst, seconds = timing.group.largest(min(error, 1e9), time.monotonic() - begun)
    return worst, seconds
