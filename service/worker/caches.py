"""How long does something take that finds nothing in the caches?"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KERNEL_CACHES = Path("/sys/devices/system/cpu")
"""Where Linux tells of a processor's caches."""

UNKNOWN_CACHE_BYTES = 64 * 2**20
"""Read where nobody tells how large the caches are. Source: a choice, above the L2 of an H200 (50 MB)."""

MOST_CACHE_BYTES = 512 * 2**20
"""Caches that are emptied at most: beyond that reading takes longer than what is measured. Source: a choice."""

TIMES_THE_CACHE = 2
"""A buffer of this many times the caches leaves nothing in them that was there before. Source: a choice."""


class Caches:
    """Empties the caches of a device and takes the time of what runs after that.

    The buffer is read, not written, so that nothing has to be written back while the time runs.

    Args:
        device: the device, as torch writes it
    """

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self._is_gpu = device != "cpu"
        self._device = device
        size = TIMES_THE_CACHE * min(MOST_CACHE_BYTES, self._cache_bytes())
        self._buffer = torch.ones(size // 4, dtype=torch.float32, device=device)

    def _cache_bytes(self) -> int:
        if self._is_gpu:
            properties = self._torch.cuda.get_device_properties(self._device)
            return int(getattr(properties, "L2_cache_size", UNKNOWN_CACHE_BYTES))
        return last_level_bytes(KERNEL_CACHES) or UNKNOWN_CACHE_BYTES

    def wait(self) -> None:
        """Wait until the device has nothing left to do."""
        if self._is_gpu:
            self._torch.cuda.synchronize(self._device)

    def release(self) -> None:
        """Give back memory that nothing uses any more."""
        if self._is_gpu:
            self._torch.cuda.empty_cache()

    def cold_seconds(self, work: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
        """Time of one run on emptied caches, between two events of a GPU, or by the clock of this process.

        Reading the buffer takes a GPU longer than it takes this process to enqueue what comes after, so that the time
        is the device's own.

        Args:
            work: what runs
            before: what runs between reading and the first event

        Returns:
            time [s]
        """
        self._buffer.sum()
        if before is not None:
            before()
        if not self._is_gpu:
            begun = time.perf_counter()
            work()
            return time.perf_counter() - begun
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        self.wait()
        return float(begin.elapsed_time(end)) * 1e-3


def last_level_bytes(root: Path) -> int:
    """Size of all caches of the last level of this machine's processors.

    Args:
        root: where Linux tells of processors

    Returns:
        their size [byte]; 0 where it does not tell
    """
    found: dict[tuple[int, str], int] = {}
    for cache in root.glob("cpu[0-9]*/cache/index[0-9]*"):
        texts = [cache / name for name in ("level", "shared_cpu_list", "size", "type")]
        if not all(text.is_file() for text in texts):
            continue
        level, shared, size, kind = (text.read_text(encoding="utf-8").strip() for text in texts)
        if kind != "Instruction" and size.endswith("K"):
            found[int(level), shared] = int(size[:-1]) * 1024
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last)
