"""What does the driver say of a GPU: its clocks, its limits, who else uses it? Asked of nvidia-smi, where there is one.

Fields are those of `nvidia-smi --help-query-gpu`. Drivers from 535 on call throttle reasons event reasons; a driver
that does not know one name is asked by the other.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAM = "nvidia-smi"

ASKED_SECONDS = 20.0
"""Time that the driver has to answer: without a persistence daemon it loads first. Source: a choice."""

WATCHED_MILLISECONDS = 200
"""Between two looks at the clock while a probe runs. Source: a choice."""

REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
"""Bits of the driver's mask. Source: NVIDIA, NVML API reference, nvmlClocksEventReasons (R550)."""

IDLE = 0x1
"""Not a reason to be slow while something runs."""

MEBIBYTE = 2.0**20

_ACTIVE = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")

SLICES = "mig.mode.current"

FIELDS = ("uuid", "pci.bus_id", "driver_version", "clocks.max.sm", "power.limit", "memory.used", SLICES)
"""What is asked of each GPU."""

FIELDS_OF_OLD = FIELDS[:-1]
"""What a driver is asked that is too old to know of slices: it refuses the whole question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """One GPU as its driver tells it."""

    uuid: str
    """Its name all over the world."""
    address: str
    """Where it is plugged in, as PCI writes it."""
    driver: str
    """Version of the driver."""
    most_clock_hz: float | None
    """Highest clock of its processors."""
    power_limit_watts: float | None
    """Power that it is limited to."""
    is_divided: bool
    """Whether it is divided into slices (MIG)."""
    used_bytes: float | None
    """Memory that is in use, by whomever."""


def ask(*words: str) -> str | None:
    """What the driver's program answers.

    Args:
        words: what it is asked

    Returns:
        what it printed; None where there is no such program, no GPU, or no such field
    """
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - words are ours, and the program stands in PATH
            [program, *words], capture_output=True, text=True, check=False, timeout=ASKED_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def driven_gpus() -> tuple[Driven, ...]:
    """Every GPU that the driver tells of.

    Returns:
        them, in its order; none where there is no driver
    """
    for fields in (FIELDS, FIELDS_OF_OLD):
        text = ask(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        if text is not None:
            return parse_gpus(text, fields)
    return ()


def parse_gpus(text: str, fields: Sequence[str] = FIELDS) -> tuple[Driven, ...]:
    """GPUs out of what the driver's program printed.

    >>> text = "GPU-1, 00000000:3B:00.0, 535.129.03, 1980, 700.00, 4, Disabled"
    >>> gpu = parse_gpus(text)[0]
    >>> gpu.most_clock_hz, gpu.power_limit_watts, gpu.used_bytes
    (1980000000.0, 700.0, 4194304.0)

    Args:
        text: lines of comma-separated values, without a header and units
        fields: what was asked for

    Returns:
        them, in the same order
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return tuple(_driven(dict(zip(fields, row, strict=True))) for row in rows if len(row) == len(fields))


def _driven(said: Mapping[str, str]) -> Driven:
    return Driven(
        uuid=said["uuid"],
        address=said["pci.bus_id"].lower(),
        driver=said["driver_version"],
        most_clock_hz=_number(said["clocks.max.sm"], 1e6),
        power_limit_watts=_number(said["power.limit"], 1.0),
        is_divided=said.get(SLICES) == "Enabled",
        used_bytes=_number(said["memory.used"], MEBIBYTE),
    )


def _number(cell: str, scale: float) -> float | None:
    """A number in base units; None where the driver says that it has none, as [N/A]."""
    try:
        return float(cell) * scale
    except ValueError:
        return None


def computing_processes(gpu: Driven) -> tuple[int, ...]:
    """Processes that compute on a GPU, as far as the driver lets this process see them.

    Args:
        gpu: the GPU

    Returns:
        their ids, this process among them where it computes
    """
    said = ask(f"--id={gpu.uuid}", "--query-compute-apps=pid", "--format=csv,noheader,nounits") or ""
    return tuple(int(line) for line in map(str.strip, said.splitlines()) if line.isdigit())


def parse_looks(text: str) -> tuple[tuple[float | None, int], ...]:
    """Clocks and reasons out of what the driver's program printed while it watched.

    >>> parse_looks("1755, 0x0000000000000004")
    ((1755000000.0, 4),)

    Args:
        text: lines of clock and mask; a line that was cut off is passed over

    Returns:
        clock [Hz] and mask of each look
    """
    looks = []
    for line in text.splitlines():
        clock, _, mask = (cell.strip() for cell in line.partition(","))
        if mask.startswith("0x") and len(mask) == len("0x0000000000000000"):
            looks.append((_number(clock, 1e6), int(mask, 16)))
    return tuple(looks)


def reasons_of(mask: int) -> tuple[str, ...]:
    """Names of the bits of a mask, idleness left out.

    >>> reasons_of(0x25), reasons_of(0x400)
    (('sw_power_cap', 'sw_thermal_slowdown'), ('bit_0x400',))

    Args:
        mask: the driver's mask

    Returns:
        names, in the order of the bits
    """
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return tuple(REASONS.get(bit, f"bit_{bit:#x}") for bit in bits if bit != IDLE)


class Watch:
    """Looks at a GPU's clock and at what holds it down, from beside, while something runs on it.

    Args:
        gpu: the GPU; None watches nothing
        file: where the looks are written meanwhile
    """

    def __init__(self, gpu: Driven | None, file: Path) -> None:
        self._gpu, self._file = gpu, file
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program, field = shutil.which(PROGRAM), None
        if program is not None and self._gpu is not None:
            field = next((name for name in _ACTIVE if ask(f"--query-gpu={name}", "--format=csv,noheader")), None)
        if program is None or self._gpu is None or field is None:
            return self
        words = [f"--id={self._gpu.uuid}", f"--query-gpu=clocks.sm,{field}", "--format=csv,noheader,nounits"]
        with self._file.open("wb") as looks:
            self._process = subprocess.Popen(  # noqa: S603 - words are ours, and the program stands in PATH
                [program, *words, f"--loop-ms={WATCHED_MILLISECONDS}"], stdout=looks, stderr=subprocess.DEVNULL
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGTERM)
            self._process.wait()

    def looks(self) -> tuple[tuple[float | None, int], ...]:
        """What was seen while something ran.

        Returns:
            clock [Hz] and mask of each look at which the GPU was not idle
        """
        text = self._file.read_text(encoding="utf-8") if self._process is not None else ""
        return tuple((clock, mask) for clock, mask in parse_looks(text) if not mask & IDLE)
