"""What does each collective exchange, and what should come out of it?

The number at place i of rank r's data is number i mod TILE of what r draws, so that every rank can tell what any other
sent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from service.worker.group import Group
from service.worker.operands import spread

NUMBER_BYTES = 4
"""Bytes of one of the numbers that are exchanged: fp32."""

TILE = 65_537
"""Numbers that a rank draws. A prime, so that parts of equal length differ."""

CHECKED = 4_096
"""Numbers of a result that are compared. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One operation of one size, as one rank takes part in it."""

    run: Callable[[], Any]
    """Does it."""
    result: Any
    """Where the result stands."""
    exact: Callable[[Any], Any]
    """What should stand at some places of it, in double precision."""
    fill: Callable[[], Any] = lambda: None
    """Puts this rank's numbers where the operation overwrites them."""


BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "send": lambda ranks: 1.0,  # noqa: ARG005 - whatever their number
}
"""Bytes that a link carries for each byte of the size. Source: NVIDIA/nccl-tests@v2.13 doc/PERFORMANCE.md."""


def exchange_of(operation: str, size_bytes: int, group: Group) -> Exchange:
    """An operation, its buffers filled.

    Args:
        operation: which
        size_bytes: the whole tensor; rounded up to a number for each rank
        group: the ranks

    Returns:
        the exchange
    """
    part = -(-size_bytes // (NUMBER_BYTES * group.told.ranks))
    return _EXCHANGES[operation](part, group)


def checked_places(exchange: Exchange) -> list[int]:
    """Places of a result that are compared.

    Args:
        exchange: the exchange

    Returns:
        places, spread evenly
    """
    return spread(exchange.result.numel(), CHECKED)


@cache
def _drawn(rank: int) -> Any:
    """The numbers that a rank draws."""
    import torch

    return torch.randn(TILE, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def _sent(rank: int, places: Any) -> Any:
    """What stands at places of a rank's data."""
    return _drawn(rank)[places % TILE]


def _summed(ranks: int, places: Any) -> Any:
    """What all ranks' data add up to there."""
    return sum(_sent(rank, places) for rank in range(ranks))


def _own(count: int, group: Group) -> Any:
    """This rank's data, on its device."""
    import torch

    repeated = _drawn(group.told.rank).float().to(group.told.device).repeat(count // TILE + 1)
    return torch.narrow(repeated, 0, 0, count)


def _room(count: int, group: Group) -> Any:
    import torch

    return torch.empty(count, dtype=torch.float32, device=group.told.device)


def _all_reduce(part: int, group: Group) -> Exchange:
    ranks = group.told.ranks
    own, result = _own(part * ranks, group), _room(part * ranks, group)
    return Exchange(
        run=lambda: group.distributed.all_reduce(result),
        result=result,
        exact=partial(_summed, ranks),
        fill=lambda: result.copy_(own),
    )


def _all_gather(part: int, group: Group) -> Exchange:
    own, result = _own(part, group), _room(part * group.told.ranks, group)
    gather = group.named("all_gather_single", "all_gather_into_tensor")

    def exact(places: Any) -> Any:
        return sum(_sent(rank, places % part) * (places // part == rank) for rank in range(group.told.ranks))

    return Exchange(run=lambda: gather(result, own), result=result, exact=exact)


def _reduce_scatter(part: int, group: Group) -> Exchange:
    ranks = group.told.ranks
    own, result = _own(part * ranks, group), _room(part, group)
    scatter = group.named("reduce_scatter_single", "reduce_scatter_tensor")
    return Exchange(
        run=lambda: scatter(result, own),
        result=result,
        exact=lambda places: _summed(ranks, group.told.rank * part + places),
    )


def _all_to_all(part: int, group: Group) -> Exchange:
    ranks = group.told.ranks
    own, result = _own(part * ranks, group), _room(part * ranks, group)

    def exact(places: Any) -> Any:
        mine = group.told.rank * part + places % part
        return sum(_sent(rank, mine) * (places // part == rank) for rank in range(ranks))

    return Exchange(run=lambda: group.distributed.all_to_all_single(result, own), result=result, exact=exact)


def _send(part: int, group: Group) -> Exchange:
    """Each rank sends to the next and receives from the one before, as stages of a pipeline do."""
    told, distributed = group.told, group.distributed
    own, result = _own(part * told.ranks, group), _room(part * told.ranks, group)
    before, after = (told.rank - 1) % told.ranks, (told.rank + 1) % told.ranks

    def send() -> None:
        both = [distributed.P2POp(distributed.isend, own, after), distributed.P2POp(distributed.irecv, result, before)]
        for work in distributed.batch_isend_irecv(both):
            work.wait()

    return Exchange(run=send, result=result, exact=partial(_sent, before))


_EXCHANGES: Mapping[str, Callable[[int, Group], Exchange]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "send": _send,
}
"""Operations by the name that questions give them."""
