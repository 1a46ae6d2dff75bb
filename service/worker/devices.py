"""Which device does a process measure on, and is it free?"""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import service
from service.units import BYTES, said
from service.worker.driver import Driven, computing_processes, driven_gpus
from service.worker.probing import CannotRun

HIDES_GPUS = "CUDA_VISIBLE_DEVICES"

CHECKOUT = Path(service.__file__).parents[1]
"""Folder of the package; in a checkout it has the project's own file beside it."""

TORCH = "'torch>=2.6'"
"""All that the extra `measure` brings, for an image without the project's own file."""

FREE_BYTES = 2.0**30
"""Memory in use on a GPU that nobody uses, at most: older drivers count some 0.5 GiB of their own. Source: a choice."""


def missing_torch() -> str | None:
    """Why nothing can be measured here without torch, and the command that adds it.

    Returns:
        the sentence; None where torch is installed
    """
    if importlib.util.find_spec("torch") is not None:
        return None
    is_checkout = (CHECKOUT / "pyproject.toml").is_file()
    wanted = "'.[measure]'" if is_checkout else TORCH
    return f"torch is not installed where the worker runs: pip install {wanted}"


def chosen_device(local_rank: int) -> str:
    """The device of one of the processes on this machine.

    Args:
        local_rank: which of them it is

    Returns:
        the device, as torch writes it; the processor where there is no GPU

    Raises:
        CannotRun: there is a GPU that torch cannot use, or there are too few of them
    """
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        if local_rank >= count:
            raise CannotRun(f"process {local_rank + 1} has no GPU: there are {count}; ask for at most {count} ranks")
        return f"cuda:{local_rank}"
    gpus = () if os.environ.get(HIDES_GPUS) in {"", "-1"} else driven_gpus()
    if gpus:
        raise CannotRun(unusable(str(torch.__version__), gpus[0].driver, _why_not(torch)))
    return "cpu"


def _why_not(torch: ModuleType) -> str:
    """The first sentence of what torch says when it is asked for a GPU."""
    try:
        torch.cuda.init()
    except Exception as error:
        return str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
    return "it finds none"


def unusable(torch: str, driver: str, said: str) -> str:
    """Why torch cannot use a GPU that the driver tells of, and what to do.

    >>> unusable("2.9.0", "470.57", "The NVIDIA driver on your system is too old (found version 11040)")
    'the driver is too old: 470.57 does not run torch 2.9.0; update the driver, or install a torch built for it'

    Args:
        torch: version of torch
        driver: version of the driver
        said: what torch says of it

    Returns:
        one sentence
    """
    mend = "update the driver, or install a torch built for it"
    if "too old" in said:
        return f"the driver is too old: {driver} does not run torch {torch}; {mend}"
    return f"torch {torch} cannot use the GPU that driver {driver} tells of: {said}; {mend}"


def make_current(device: str) -> None:
    """Have streams and events of this process be those of its device.

    Args:
        device: the device, as torch writes it
    """
    if device != "cpu":
        import torch

        torch.cuda.set_device(device)


def driven(device: str) -> Driven | None:
    """The GPU behind a device of torch, as its driver tells it.

    Args:
        device: the device, as torch writes it

    Returns:
        the GPU; None on a processor, and where there is no driver to ask
    """
    if device == "cpu":
        return None
    import torch

    properties = torch.cuda.get_device_properties(device)
    gpus = driven_gpus()
    address = _address(properties)
    uuid = str(getattr(properties, "uuid", ""))
    found = [gpu for gpu in gpus if (address and gpu.address.endswith(address)) or (uuid and uuid in gpu.uuid)]
    return next(iter(found), gpus[0] if len(gpus) == 1 else None)


def _address(properties: object) -> str | None:
    """Where torch says that a GPU is plugged in, as PCI writes it; None where this torch does not say."""
    bus, slot = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None)
    domain = getattr(properties, "pci_domain_id", 0)
    return None if bus is None or slot is None else f"{domain:04x}:{bus:02x}:{slot:02x}.0"


def others_on(gpu: Driven | None) -> int:
    """Processes of others that use a GPU; asked before this one does.

    A container hides them and shows their memory all the same, so memory in use counts as one. Slices of a divided GPU
    are kept apart by hardware, so who is on another of them counts for nothing.

    Args:
        gpu: the GPU

    Returns:
        how many
    """
    if gpu is None or gpu.is_divided:
        return 0
    seen = len([pid for pid in computing_processes(gpu) if pid != os.getpid()])
    hidden = (gpu.used_bytes or 0.0) > FREE_BYTES
    return max(seen, int(hidden))


def others_beside(gpu: Driven | None) -> int:
    """Processes of others that use a GPU on which this one computes: they came while it measured.

    Its own are those of its session. A container may number processes otherwise than the driver; then one of those that
    the driver tells is this one.

    Args:
        gpu: the GPU

    Returns:
        how many
    """
    if gpu is None or gpu.is_divided:
        return 0
    seen = computing_processes(gpu)
    return max(0, len(seen) - max(1, sum(map(_is_own, seen))))


def _is_own(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except OSError:
        return False


def refuse_busy(gpu: Driven | None, others: int) -> None:
    """Refuse to measure beside others: neither would learn what it takes alone.

    Args:
        gpu: the GPU
        others: processes of others that use it

    Raises:
        CannotRun: somebody uses it
    """
    if gpu is not None and others:
        used = f", which hold {said(gpu.used_bytes, BYTES)}" if gpu.used_bytes else ""
        raise CannotRun(
            f"{others} other process{'es' if others > 1 else ''} on GPU {gpu.uuid}{used}; "
            "end them or wait (nvidia-smi lists them), then ask again"
        )
