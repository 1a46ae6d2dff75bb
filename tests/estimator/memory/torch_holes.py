"""Bytes for each logit that the caching allocator reserves for an eager loss beside its live tensors.

Torch names the storages of the loss in their order; the allocator's rules for large blocks place them: the smallest
free block that fits, split, freed blocks merged with free neighbours, and else new memory. That continues the segment
where segments grow, and is a segment of its own where they do not.
Source: torch 2.13 c10/cuda/CUDACachingAllocator.cpp (get_free_block, should_split, free_block, map_block).
"""

import json
import sys
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TOKENS, HIDDEN, VOCABULARY = 64, 4, 4096

Block = tuple[int, int]
"""Address and bytes."""


class Storages(TorchDispatchMode):
    """The storages that operations make and free, in order, with their bytes."""

    def __init__(self, least_bytes: int) -> None:
        super().__init__()
        self.least_bytes = least_bytes
        self.events: list[tuple[int, int]] = []
        self._live: dict[int, int] = {}

    def __torch_dispatch__(
        self, function: Any, _: Any, arguments: Any = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        result = function(*arguments, **(named or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.untyped_storage().nbytes() >= self.least_bytes:
                self._add(one.untyped_storage())
        return result

    def _add(self, storage: Any) -> None:
        if storage._cdata not in self._live:
            self._live[storage._cdata] = name = len(self.events)
            self.events.append((name, storage.nbytes()))
            weakref.finalize(storage, self._free, storage._cdata)

    def _free(self, address: int) -> None:
        self.events.append((self._live.pop(address), 0))


def reserved_and_live_bytes(events: list[tuple[int, int]], *, grows: bool) -> tuple[int, int]:
    """Most bytes reserved and most bytes live."""
    free: list[Block] = []
    taken: dict[int, Block] = {}
    top = reserved = live = most_live = 0
    for name, size in events:
        if size == 0:
            block = taken.pop(name)
            live -= block[1]
            free = merged([*free, block])
            continue
        if all(own < size for _, own in free):
            last = next((one for one in free if grows and sum(one) == top), (top if grows else top + 1, 0))
            reserved += size - last[1]
            top = last[0] + size
            free = [*(one for one in free if one != last), (last[0], size)]
        start, own = min((one for one in free if one[1] >= size), key=lambda one: one[1])
        free = [one for one in (*free, (start + size, own - size)) if one[0] != start and one[1]]
        taken[name] = (start, size)
        live += size
        most_live = max(most_live, live)
    return reserved, most_live


def merged(blocks: list[Block]) -> list[Block]:
    """Free blocks, neighbours as one."""
    result: list[Block] = []
    for start, size in sorted(blocks):
        if result and sum(result[-1]) == start:
            result[-1] = (result[-1][0], result[-1][1] + size)
        else:
            result.append((start, size))
    return result


def events_of_loss() -> list[tuple[int, int]]:
    """The storages of an eager loss of 16-bit logits, which the caller drops before the backward pass."""
    # Source: pytorch/torchtitan@b5bcd76c6 train.py (del pred), components/loss.py (cross_entropy of pred.float())
    weight = torch.randn(VOCABULARY, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    stream = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(VOCABULARY, (1, TOKENS))
    with Storages(TOKENS * VOCABULARY) as storages:
        logits = functional.linear(stream, weight)
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
        del logits
        loss.backward()
    return storages.events


def holes() -> dict[str, float]:
    """Bytes for each logit: reserved beside live ones where segments grow, the same where they do not, and live."""
    result: dict[str, float] = {}
    events, logits = events_of_loss(), TOKENS * VOCABULARY
    for name, grows in (("grown", True), ("opened", False)):
        reserved, live = reserved_and_live_bytes(events, grows=grows)
        result |= {name: (reserved - live) / logits, "live": live / logits}
    return result


if __name__ == "__main__":
    json.dump(holes(), sys.stdout)
