"""What does memory hold while training goes on? On a GPU torch's allocator counts, on a processor its profiler."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

MARK = "traincost mark "
"""Name under which moments stand in a profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Bytes that memory holds at one mark."""

    live_bytes: int
    """Live tensors at the mark, temporaries inside operations counted."""
    peak_bytes: int
    """Most of them since the mark before."""
    reserved_bytes: int | None = None
    """What the allocator holds; None where it holds nothing back."""
    device_bytes: int | None = None
    """What the device says is in use, by everybody; None where there is none."""


Work = Callable[[Callable[[], None]], None]
"""Something to measure, which calls what it is given at each mark."""


def readings(work: Work, device: str) -> list[Reading]:
    """What memory holds at the marks of some work.

    Args:
        work: what to measure; all that it holds it makes itself
        device: where it computes

    Returns:
        one reading a mark
    """
    return _device_readings(work, device) if torch.device(device).type == "cuda" else _host_readings(work)


def _device_readings(work: Work, device: str) -> list[Reading]:
    """Readings of torch's caching allocator on one GPU."""
    found: list[Reading] = []

    def mark() -> None:
        free, total = torch.cuda.mem_get_info(device)
        found.append(
            Reading(
                live_bytes=torch.cuda.memory_allocated(device),
                peak_bytes=torch.cuda.max_memory_allocated(device),
                reserved_bytes=torch.cuda.max_memory_reserved(device),
                device_bytes=total - free,
            )
        )
        torch.cuda.reset_peak_memory_stats(device)

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    work(mark)
    return found


def _host_readings(work: Work) -> list[Reading]:
    """Readings of the memory events of torch's profiler.

    torch's allocator for processors tells the profiler of every allocation, those inside operations too. Modes that see
    operations alone (`torch.utils._python_dispatch`) miss what an operation makes and frees again by itself.
    """
    marks = iter(range(1 << 30))

    def mark() -> None:
        with record_function(f"{MARK}{next(marks)}"):
            pass

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work(mark)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
    return marked_readings(trace["traceEvents"])


def marked_readings(events: Iterable[Mapping[str, Any]]) -> list[Reading]:
    """Readings at the marks of a trace.

    Args:
        events: events of a Chrome trace, in any order

    Returns:
        one reading a mark

    >>> memory = {"name": "[memory]", "ph": "i"}
    >>> events = [memory | {"ts": ts, "args": {"Bytes": given}} for ts, given in ((1, 8), (2, 4), (3, -4), (5, -8))]
    >>> found = marked_readings([*events, {"name": MARK + "0", "ts": 4}, {"name": MARK + "1", "ts": 6}])
    >>> [(one.live_bytes, one.peak_bytes) for one in found]
    [(8, 12), (0, 8)]
    """
    told = [event for event in events if event.get("name") == "[memory]" or str(event.get("name")).startswith(MARK)]
    found: list[Reading] = []
    live = peak = 0
    for event in sorted(told, key=lambda event: float(event["ts"])):
        if event["name"] == "[memory]":
            live += int(event["args"]["Bytes"])
            peak = max(peak, live)
        else:
            found.append(Reading(live_bytes=live, peak_bytes=peak))
            peak = live
    return found
