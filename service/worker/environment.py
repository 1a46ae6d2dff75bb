"""What was measured on? The device, its driver and libraries, and what held it back meanwhile."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from service.calibration.records import Environment
from service.worker.devices import driven, others_beside, others_on
from service.worker.driver import Driven, Watch, reasons_of

CPU_MODELS = Path("/proc/cpuinfo")
VECTORS = ("avx", "fma", "amx", "asimd", "sve")
"""How the names of instructions begin that compute with many numbers at once."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
AMD_DRIVER = Path("/sys/module/amdgpu/version")


@dataclass(slots=True)
class Surroundings:
    """What is known of what a probe runs on; complete once it has ended."""

    environment: Environment
    """What was measured on."""
    gpu: Driven | None
    """The GPU as its driver tells it."""


@contextmanager
def watched(device: str, folder: Path) -> Iterator[Surroundings]:
    """What a probe runs on, looked at before it, from beside while it runs, and after it.

    Args:
        device: device that it runs on, as torch writes it
        folder: where looks at the clock are written meanwhile

    Yields:
        the surroundings; clock and throttle reasons come in when the probe has ended
    """
    gpu = driven(device)
    surroundings = Surroundings(environment=environment_of(device, gpu), gpu=gpu)
    with Watch(gpu, folder / "clock.csv") as watch:
        yield surroundings
    looks = watch.looks()
    mask = 0
    for _, reasons in looks:
        mask |= reasons
    clock = looks[-1][0] if looks else None
    environment = surroundings.environment
    others = max(environment.other_processes, others_beside(gpu))
    surroundings.environment = replace(
        environment, clock_hz=clock, throttle_reasons=reasons_of(mask), other_processes=others
    )


def environment_of(device: str, gpu: Driven | None) -> Environment:
    """What is known of a device before anything runs on it.

    Args:
        device: the device, as torch writes it
        gpu: the same as its driver tells it; None where there is none to ask

    Returns:
        the environment
    """
    import torch

    return _processor(torch) if device == "cpu" else _gpu(torch, device, gpu)


def _gpu(torch: ModuleType, device: str, gpu: Driven | None) -> Environment:
    properties = torch.cuda.get_device_properties(device)
    hip = getattr(torch.version, "hip", None)
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
        nccl=nccl_version(torch),
        python=platform.python_version(),
        most_clock_hz=gpu.most_clock_hz if gpu else None,
        power_limit_watts=gpu.power_limit_watts if gpu else None,
        is_partition=" MIG " in properties.name,
        other_processes=others_on(gpu),
    )


def nccl_version(torch: ModuleType) -> str | None:
    """Version of the library of collectives between GPUs.

    Args:
        torch: the module

    Returns:
        the version, its parts joined by dots; None where torch was built without one
    """
    try:
        version = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError):
        return None
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def _processor(torch: ModuleType) -> Environment:
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


def cpu_name(text: str) -> str:
    r"""Name of the processor, out of the kernel's list of them.

    >>> cpu_name("processor : 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\n")
    'AMD EPYC 7763 64-Core Processor'

    Args:
        text: the list; empty where this system has none

    Returns:
        the name; that of the architecture where none is told
    """
    return _told(text, "model name") or platform.processor() or platform.machine()


def cpu_instructions(text: str) -> tuple[str, ...]:
    r"""Instructions of the processor that compute with many numbers at once, out of the kernel's list of processors.

    >>> cpu_instructions("processor : 0\nflags\t\t: fpu sse2 fma avx avx2 avx512f erms\n")
    ('avx', 'avx2', 'avx512f', 'fma')

    Args:
        text: the list; empty where this system has none

    Returns:
        their names as the kernel has them, sorted
    """
    named = (_told(text, "flags") or _told(text, "Features")).split()
    return tuple(sorted(name for name in named if name.startswith(VECTORS)))


def _told(text: str, name: str) -> str:
    """What the kernel's list tells of the first processor under a name; empty where it does not."""
    rows = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in rows if key.strip() == name), "")


def memory_bytes() -> float:
    """Memory that this machine has, or the container is limited to.

    Returns:
        memory [byte]
    """
    whole = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = CGROUP_LIMIT.read_text(encoding="utf-8").strip() if CGROUP_LIMIT.is_file() else ""
    return min(whole, float(limit)) if limit.isdigit() else whole
