"""Hardware of a row: catalogue GPU by family, form and memory size; power limit; network rate."""

import re
from dataclasses import replace

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue, GpuRow
from service.estimator.question import Gpu

GIB = 1 << 30

SAME_SIZE_FRACTION = 0.1
"""How far two sizes of one device may differ: vendors and drivers count differently."""

HBM2E_BYTES_PER_S_PER_GIB = 25e9
"""Memory rate of an H100 with HBM2e per GiB: 2.0 TB/s for the 80 GB of the PCIe board.
Source: catalogue/gpus.csv, h100-pcie-80gb; as many bytes a second for each stack."""

_CAP = re.compile(r"(\d+) W cap")
_FORMS = {"sxm": "sxm", "pcie": "pcie", "nvl": "nvl"}
_FAMILY = re.compile(r"(?:rtx |geforce )*([a-z]*\d+[a-z]*)")
_BLACKWELL_UNNAMED = re.compile(r"blackwell (\d+) gib class")


def gpu_slug(row: MeasuredRow, catalogue: Catalogue) -> str:
    """Catalogue name of a row's GPU."""
    cell = row.text("gpu").lower()
    size = row.number_of("gpu_mem_gb")
    candidates = [found for found in catalogue.gpus.values() if _is_meant(found, cell)]
    form = next((form for form in _FORMS if form in cell), None)
    of_form = [found for found in candidates if form and form in found.gpu.slug] or candidates
    if not of_form:
        raise NotExpressible("gpu: not in the catalogue")
    return min(of_form, key=lambda found: (_distance(found, size), found.gpu.slug)).gpu.slug


def _is_meant(found: GpuRow, cell: str) -> bool:
    if _BLACKWELL_UNNAMED.search(cell):
        return found.gpu.slug.startswith("gb200-")
    family = _FAMILY.search(cell)
    return family is not None and family[1] in found.gpu.slug.replace("rtx-", "").split("-")


def _distance(found: GpuRow, size: float | None) -> float:
    return 0.0 if size is None else abs(found.gpu.memory_bytes / GIB - size)


def with_stated_memory(gpu: Gpu, row: MeasuredRow) -> Gpu:
    """A GPU with the memory size and rate that a row states, if they differ from the catalogue's."""
    cell = row.text("gpu")
    changed = _with_size(gpu, row)
    if "HBM2e" in cell and "H100" in cell:
        changed = replace(changed, memory_bytes_per_s=changed.memory_bytes / GIB * HBM2E_BYTES_PER_S_PER_GIB)
    return changed


def power_limit_watts(row: MeasuredRow) -> float | None:
    """Power limit of a row's GPUs."""
    cap = _CAP.search(row.text("gpu"))
    return float(cap[1]) if cap else None


def unmodelled_power(row: MeasuredRow) -> tuple[str, ...]:
    """Power details that no field of the question expresses."""
    cell = row.text("gpu")
    return (f"gpu: {cell}",) if re.search(r"power limited|lower TDP", cell) else ()


def _with_size(gpu: Gpu, row: MeasuredRow) -> Gpu:
    size = row.number_of("gpu_mem_gb")
    if not size:
        return gpu
    share = size * GIB / gpu.memory_bytes
    if abs(share - 1) <= SAME_SIZE_FRACTION:
        return gpu
    return replace(gpu, memory_bytes=gpu.memory_bytes * share, usable_bytes=gpu.usable_bytes * share)
