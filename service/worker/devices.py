"""Devices of this host and their drivers, the device of a process, and the environment of a measurement."""

import importlib.util
import json
import logging
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import service
from service.calibration.records import Environment
from service.units import BYTES, in_units
from service.worker.probing import CannotRun

PROGRAM = "nvidia-smi"

DRIVER_SECONDS = 20.0
"""Longest wait for the driver's program: without a persistence daemon it loads first. Source: a choice."""
SAMPLE_MILLISECONDS = 200
"""Period of the clock's samples while a probe runs. Source: a choice."""

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
"""Not a reason for a low clock under load."""

MEBIBYTE = 2.0**20

_ACTIVE = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")

SLICES = "mig.mode.current"

FIELDS = ("uuid", "pci.bus_id", "driver_version", "clocks.max.sm", "power.limit", "memory.used", SLICES)

FIELDS_OF_OLD = FIELDS[:-1]
"""Fields for a driver that is too old for slices: it refuses the whole query otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverGpu:
    uuid: str
    """Globally unique name."""
    address: str
    driver: str
    """Version of the driver."""
    most_clock_hz: float | None
    """Highest clock of its processors."""
    power_limit_watts: float | None
    """Power limit."""
    is_divided: bool
    """Whether it is divided into slices (MIG)."""
    used_bytes: float | None
    """Memory in use by all processes."""


def ask(*words: str) -> str | None:
    """Output of the driver's program."""
    try:
        return _output_of((PROGRAM, *words), DRIVER_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None


def _output_of(command: Sequence[str], most_seconds: float) -> str:
    return subprocess.run(  # noqa: S603 - words are ours, and the program is in PATH
        command, capture_output=True, text=True, check=True, timeout=most_seconds, stdin=subprocess.DEVNULL
    ).stdout


def driver_gpus() -> tuple[DriverGpu, ...]:
    for fields in (FIELDS, FIELDS_OF_OLD):
        text = ask(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        if text is not None:
            return parse_gpus(text, fields)
    return ()


def parse_gpus(text: str, fields: Sequence[str] = FIELDS) -> tuple[DriverGpu, ...]:
    """GPUs from the output of the driver's program.

    >>> text = "GPU-1, 00000000:3B:00.0, 535.129.03, 1980, 700.00, 4, Disabled"
    >>> gpu = parse_gpus(text)[0]
    >>> gpu.most_clock_hz, gpu.power_limit_watts, gpu.used_bytes
    (1980000000.0, 700.0, 4194304.0)
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    outputs = [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]
    return tuple(
        DriverGpu(
            uuid=output["uuid"],
            address=output["pci.bus_id"].lower(),
            driver=output["driver_version"],
            most_clock_hz=_number(output["clocks.max.sm"], 1e6),
            power_limit_watts=_number(output["power.limit"], 1.0),
            is_divided=output.get(SLICES) == "Enabled",
            used_bytes=_number(output["memory.used"], MEBIBYTE),
        )
        for output in outputs
    )


def _number(cell: str, scale: float) -> float | None:
    """A number in base units; None for [N/A]."""
    try:
        return float(cell) * scale
    except ValueError:
        return None


def computing_processes(gpu: DriverGpu) -> tuple[int, ...]:
    """Processes that compute on a GPU, as far as the driver shows them."""
    output = ask(f"--id={gpu.uuid}", "--query-compute-apps=pid", "--format=csv,noheader,nounits") or ""
    return tuple(int(line) for line in map(str.strip, output.splitlines()) if line.isdigit())


def parse_samples(text: str) -> tuple[tuple[float | None, int], ...]:
    """Clocks and throttle reasons from the output of the driver's program.

    >>> parse_samples("1755, 0x0000000000000004")
    ((1755000000.0, 4),)
    """
    samples = []
    for line in text.splitlines():
        clock, _, mask = (cell.strip() for cell in line.partition(","))
        if mask.startswith("0x") and len(mask) == len("0x0000000000000000"):
            samples.append((_number(clock, 1e6), int(mask, 16)))
    return tuple(samples)


def reasons_of(mask: int) -> tuple[str, ...]:
    """Names of the bits of a mask, idleness left out.

    >>> reasons_of(0x25), reasons_of(0x400)
    (('sw_power_cap', 'sw_thermal_slowdown'), ('bit_0x400',))
    """
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return tuple(REASONS.get(bit, f"bit_{bit:#x}") for bit in bits if bit != IDLE)


@contextmanager
def sampling(gpu: DriverGpu | None, file: Path) -> Iterator[None]:
    """Sample a GPU's clock and throttle reasons into a file while something runs on it; nothing without a driver."""
    field = gpu and next((name for name in _ACTIVE if ask(f"--query-gpu={name}", "--format=csv,noheader")), None)
    if gpu is None or field is None:
        yield
        return
    words = [f"--id={gpu.uuid}", f"--query-gpu=clocks.sm,{field}", "--format=csv,noheader,nounits"]
    with file.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - words are ours, and the program is in PATH
            [PROGRAM, *words, f"--loop-ms={SAMPLE_MILLISECONDS}"], stdout=output, stderr=subprocess.DEVNULL
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def samples_in(file: Path) -> tuple[tuple[float | None, int], ...]:
    """The samples in a file, those of an idle GPU left out."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return tuple((clock, mask) for clock, mask in parse_samples(text) if not mask & IDLE)


log = logging.getLogger(__name__)

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of GPUs: NVIDIA's driver, AMD's, that of Windows behind WSL. Source: their packages."""

NEEDED_BY_SWEEPS = ("numpy", "pyarrow", "pydantic")

TORCH_SECONDS = 120.0
"""Longest wait for torch to load. Source: a choice; a cold network disk takes a minute."""

TORCH_QUERY = """
import json, torch
found = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
print(json.dumps([[one.name, one.total_memory] for one in found]))
"""
DRIVER_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
"""Variable that lists the visible GPUs of a process; ROCm's libraries read it too."""


def gpus_here() -> list[tuple[str, float]]:
    """Each GPU of this host that a measurement could use, by name and memory in torch's order."""
    if not any(Path(driver).exists() for driver in DRIVERS):
        return []
    has_torch = importlib.util.find_spec("torch") is not None
    command = (sys.executable, "-c", TORCH_QUERY) if has_torch else DRIVER_QUERY
    try:
        output = _output_of(command, TORCH_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("this host's GPUs are not listed by %s: %s", command[0], error)
        return []
    return [(name, memory) for name, memory in json.loads(output or "[]")] if has_torch else listed_gpus(output)


def visible_alone(name: str | None, names: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Variables under which a process sees only the GPUs of one name.

    >>> visible_alone("B", ["A", "B", "B"], {}), visible_alone("B", ["A", "B"], {"CUDA_VISIBLE_DEVICES": "3,GPU-7"})
    ({'CUDA_VISIBLE_DEVICES': '1,2'}, {'CUDA_VISIBLE_DEVICES': 'GPU-7'})
    >>> visible_alone("B", ["B", "B"], {}), visible_alone(None, ["A", "B"], {})
    ({}, {})
    """
    places = [place for place, one in enumerate(names) if one == name]
    if not places or len(places) == len(names):
        return {}
    visible = [word.strip() for word in variables.get(VISIBLE_GPUS, "").split(",") if word.strip()]
    return {VISIBLE_GPUS: ",".join(visible[place] if visible else str(place) for place in places)}


def can_sweep() -> bool:
    """Whether this host has what parts of sweeps need."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED_BY_SWEEPS)


def threads_here() -> int:
    """Processor threads that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def counted(gpus: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """Devices by kind.

    >>> counted([("A", 8.0), ("B", 4.0), ("A", 8.0)])
    [{'name': 'A', 'count': 2, 'memory_bytes': 8.0}, {'name': 'B', 'count': 1, 'memory_bytes': 4.0}]
    """
    kinds: Mapping[tuple[str, float], int] = Counter(gpus)
    return [{"name": name, "count": count, "memory_bytes": memory} for (name, memory), count in kinds.items()]


def listed_gpus(table: str) -> list[tuple[str, float]]:
    """GPUs in the driver's table.

    >>> listed_gpus("NVIDIA H100 80GB HBM3, 81559")
    [('NVIDIA H100 80GB HBM3', 85520809984.0)]
    """
    rows = (line.rpartition(",") for line in table.splitlines())
    return [(name.strip(), float(size) * MEBIBYTE) for name, _, size in rows if size.strip().isdigit()]


CHECKOUT = Path(service.__file__).parents[1]
"""Folder of the package; in a checkout pyproject.toml is beside it."""

TORCH = "'torch>=2.6'"
"""Requirement of the extra `measure`, for an image without pyproject.toml."""

FREE_BYTES = 2.0**30
"""Most memory in use on an idle GPU: older drivers count some 0.5 GiB of their own. Source: a choice."""


def missing_torch() -> str | None:
    """Why this host cannot measure without torch, with the command that installs it."""
    if importlib.util.find_spec("torch") is not None:
        return None
    is_checkout = (CHECKOUT / "pyproject.toml").is_file()
    requirement = "'.[measure]'" if is_checkout else TORCH
    return f"torch is not installed where the worker runs: pip install {requirement}"


def chosen_device(local_rank: int) -> str:
    """The device of one of the processes on this machine."""
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        if local_rank >= count:
            raise CannotRun(f"process {local_rank + 1} has no GPU: there are {count}; ask for at most {count} ranks")
        return f"cuda:{local_rank}"
    gpus = () if os.environ.get(VISIBLE_GPUS) in {"", "-1"} else driver_gpus()
    if gpus:
        reason = "it finds none"
        try:
            torch.cuda.init()
        except Exception as error:  # its first sentence
            reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise CannotRun(unusable(str(torch.__version__), gpus[0].driver, reason))
    return "cpu"


def unusable(torch: str, driver: str, output: str) -> str:
    """Why torch cannot use a GPU that the driver reports, and the remedy.

    >>> unusable("2.9.0", "470.57", "The NVIDIA driver on your system is too old (found version 11040)")
    'the driver is too old: 470.57 does not run torch 2.9.0; update the driver, or install a torch built for it'
    """
    remedy = "update the driver, or install a torch built for it"
    if "too old" in output:
        return f"the driver is too old: {driver} does not run torch {torch}; {remedy}"
    return f"torch {torch} cannot use the GPU that driver {driver} tells of: {output}; {remedy}"


def driver_gpu(device: str) -> DriverGpu | None:
    """The driver's report of the GPU behind a torch device."""
    if device == "cpu":
        return None
    import torch

    properties, gpus = torch.cuda.get_device_properties(device), driver_gpus()
    bus, slot = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None)
    domain, uuid = getattr(properties, "pci_domain_id", 0), str(getattr(properties, "uuid", ""))
    address = None if bus is None or slot is None else f"{domain:04x}:{bus:02x}:{slot:02x}.0"
    matches = [gpu for gpu in gpus if (address and gpu.address.endswith(address)) or (uuid and uuid in gpu.uuid)]
    return next(iter(matches), gpus[0] if len(gpus) == 1 else None)


def others_on(gpu: DriverGpu | None) -> int:
    """Other processes on a GPU before this one uses it. A container shows only their memory, counted as one."""
    if gpu is None or gpu.is_divided:  # hardware separates the slices of a divided GPU
        return 0
    visible = len([pid for pid in computing_processes(gpu) if pid != os.getpid()])
    hidden = (gpu.used_bytes or 0.0) > FREE_BYTES
    return max(visible, int(hidden))


def others_beside(gpu: DriverGpu | None) -> int:
    """Processes of other sessions on a GPU on which this one computes: they started during the measurement."""
    if gpu is None or gpu.is_divided:
        return 0
    visible = computing_processes(gpu)  # one is this one, even where a container numbers processes differently
    return max(0, len(visible) - max(1, sum(map(_is_own, visible))))


def _is_own(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except OSError:
        return False


def refuse_busy(gpu: DriverGpu | None, others: int) -> None:
    """Refuse to measure beside other processes: both would be slower than alone."""
    if gpu is not None and others:
        used = f", which hold {in_units(gpu.used_bytes, BYTES)}" if gpu.used_bytes else ""
        raise CannotRun(
            f"{others} other process{'es' if others > 1 else ''} on GPU {gpu.uuid}{used}; "
            "end them or wait (nvidia-smi lists them), then ask again"
        )


CPU_MODELS = Path("/proc/cpuinfo")
VECTORS = ("avx", "fma", "amx", "asimd", "sve")
"""Prefixes of the names of vector instructions."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
AMD_DRIVER = Path("/sys/module/amdgpu/version")


@dataclass(slots=True)
class EnvironmentWatch:
    """The environment of a probe; complete once the probe has ended."""

    environment: Environment
    gpu: DriverGpu | None


@contextmanager
def watched(device: str, folder: Path) -> Iterator[EnvironmentWatch]:
    """The environment of a probe, read before it, sampled while it runs, and read after it."""
    gpu = driver_gpu(device)
    watch = EnvironmentWatch(environment=environment_of(device, gpu), gpu=gpu)
    file = folder / "clock.csv"
    with sampling(gpu, file):
        yield watch
    samples = samples_in(file)
    watch.environment = replace(
        watch.environment,
        clock_hz=samples[-1][0] if samples else None,
        throttle_reasons=reasons_of(reduce(or_, (mask for _, mask in samples), 0)),
        other_processes=max(watch.environment.other_processes, others_beside(gpu)),
    )


def environment_of(device: str, gpu: DriverGpu | None) -> Environment:
    """The environment of a device before a probe runs."""
    import torch

    if device == "cpu":
        models = CPU_MODELS.read_text(encoding="utf-8") if CPU_MODELS.is_file() else ""
        return Environment(
            kind="cpu",
            device=cpu_name(models),
            devices=1,
            memory_bytes=memory_bytes(),
            threads=torch.get_num_threads(),
            instructions=cpu_instructions(models),
            torch=str(torch.__version__),
            python=platform.python_version(),
        )
    properties = torch.cuda.get_device_properties(device)
    hip = getattr(torch.version, "hip", None)
    try:
        version = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError):
        version = None
    amd = AMD_DRIVER.read_text(encoding="utf-8").strip() if hip and AMD_DRIVER.is_file() else None
    return Environment(
        kind="rocm" if hip else "cuda",
        device=properties.name,
        devices=torch.cuda.device_count(),
        memory_bytes=float(properties.total_memory),
        compute_capability=None if hip else f"{properties.major}.{properties.minor}",
        driver=gpu.driver if gpu else amd,
        runtime=hip or torch.version.cuda,
        torch=str(torch.__version__),
        nccl=".".join(map(str, version)) if isinstance(version, tuple) else version and str(version),
        python=platform.python_version(),
        most_clock_hz=gpu.most_clock_hz if gpu else None,
        power_limit_watts=gpu.power_limit_watts if gpu else None,
        is_partition=" MIG " in properties.name,
        other_processes=others_on(gpu),
    )


def cpu_name(text: str) -> str:
    r"""Name of the processor, from /proc/cpuinfo.

    >>> cpu_name("processor : 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\n")
    'AMD EPYC 7763 64-Core Processor'
    """
    return _cpu_field(text, "model name") or platform.processor() or platform.machine()


def cpu_instructions(text: str) -> tuple[str, ...]:
    r"""Vector instructions of the processor, from /proc/cpuinfo.

    >>> cpu_instructions("processor : 0\nflags\t\t: fpu sse2 fma avx avx2 avx512f erms\n")
    ('avx', 'avx2', 'avx512f', 'fma')
    """
    named = (_cpu_field(text, "flags") or _cpu_field(text, "Features")).split()
    return tuple(sorted(name for name in named if name.startswith(VECTORS)))


def _cpu_field(text: str, name: str) -> str:
    rows = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in rows if key.strip() == name), "")


def memory_bytes() -> float:
    """Memory of this machine, or the container's limit."""
    whole = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = CGROUP_LIMIT.read_text(encoding="utf-8").strip() if CGROUP_LIMIT.is_file() else ""
    return min(whole, float(limit)) if limit.isdigit() else whole
