"""Which devices does this host have? Asked in a short process of its own: the worker itself never loads torch."""

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Files of a system that may have a GPU: NVIDIA's driver, AMD's, that of Windows behind WSL. Source: their packages."""

NEEDED_BY_SWEEPS = ("numpy", "pyarrow", "pydantic")
"""What pieces of sweeps are worked out with."""

ASKED_SECONDS = 120.0
"""Longest wait for torch to load and tell. Source: a choice; a cold network disk takes a minute."""

ASKED_OF_TORCH = """
import json, torch
found = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
print(json.dumps([[one.name, one.total_memory] for one in found]))
"""
ASKED_OF_DRIVER = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
MEBIBYTE = 2.0**20

SHOWN = "CUDA_VISIBLE_DEVICES"
"""Variable that tells a process which GPUs it sees; ROCm's libraries read it too."""


def gpus_here() -> list[tuple[str, float]]:
    """Each GPU of this host that a measurement could use.

    Returns:
        name and memory of each [byte], in the order in which torch numbers them
    """
    if not any(Path(driver).exists() for driver in DRIVERS):
        return []
    if find_spec("torch") is not None:
        said = _said((sys.executable, "-c", ASKED_OF_TORCH))
        return [(name, memory) for name, memory in json.loads(said or "[]")]
    return driven(_said(ASKED_OF_DRIVER))


def devices_here() -> list[dict[str, Any]]:
    """The GPUs of this host by kind.

    Returns:
        name, count and memory_bytes of each kind
    """
    return counted(gpus_here())


def shown_alone(name: str | None, names: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Variables under which a process sees the GPUs of one name only.

    Args:
        name: their name; None for any
        names: name of each GPU that a process sees under those variables
        variables: the environment

    Returns:
        what to set; nothing where every GPU bears the name, or none does

    >>> shown_alone("B", ["A", "B", "B"], {}), shown_alone("B", ["A", "B"], {"CUDA_VISIBLE_DEVICES": "3,GPU-7"})
    ({'CUDA_VISIBLE_DEVICES': '1,2'}, {'CUDA_VISIBLE_DEVICES': 'GPU-7'})
    >>> shown_alone("B", ["B", "B"], {}), shown_alone(None, ["A", "B"], {})
    ({}, {})
    """
    places = [place for place, one in enumerate(names) if one == name]
    if not places or len(places) == len(names):
        return {}
    shown = [word.strip() for word in variables.get(SHOWN, "").split(",") if word.strip()]
    return {SHOWN: ",".join(shown[place] if shown else str(place) for place in places)}


def can_sweep() -> bool:
    """Whether the estimator can work here: what it and its tables need is installed.

    Returns:
        whether it is
    """
    return all(find_spec(name) is not None for name in NEEDED_BY_SWEEPS)


def threads_here() -> int:
    """Threads of the processors that this process may use.

    Returns:
        how many
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def counted(found: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """Devices by kind.

    Args:
        found: name and memory of each [byte]

    Returns:
        name, count and memory_bytes of each kind, in order

    >>> counted([("A", 8.0), ("B", 4.0), ("A", 8.0)])
    [{'name': 'A', 'count': 2, 'memory_bytes': 8.0}, {'name': 'B', 'count': 1, 'memory_bytes': 4.0}]
    """
    kinds: Mapping[tuple[str, float], int] = Counter(found)
    return [{"name": name, "count": count, "memory_bytes": memory} for (name, memory), count in kinds.items()]


def driven(table: str) -> list[tuple[str, float]]:
    """GPUs in the driver's table.

    Args:
        table: name and MiB a line

    Returns:
        name and memory of each [byte]

    >>> driven("NVIDIA H100 80GB HBM3, 81559")
    [('NVIDIA H100 80GB HBM3', 85520809984.0)]
    """
    rows = (line.rpartition(",") for line in table.splitlines())
    return [(name.strip(), float(size) * MEBIBYTE) for name, _, size in rows if size.strip().isdigit()]


def _said(command: Sequence[str]) -> str:
    """What a program prints; nothing where it cannot."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed commands
            command, capture_output=True, text=True, check=True, timeout=ASKED_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("this host's GPUs are not told by %s: %s", command[0], error)
        return ""
    return done.stdout
