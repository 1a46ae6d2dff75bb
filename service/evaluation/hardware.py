"""Hardware of a row: catalogue GPU by family, form and memory size; power limit; network rate."""

import re
from collections.abc import Callable
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


BYTES_PER_S_OF_GBIT = 1e9 / 8

RATES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int], float]], ...] = (
    (re.compile(r"(\d+)\s?Gb/s per GPU"), lambda cell, _: float(cell[1])),
    (re.compile(r"(\d+)x\s?(\d+)\s?Gb/s"), lambda cell, node: float(cell[1]) * float(cell[2]) / node),
    (re.compile(r"(\d+)x HDR (?:IB )?(\d+)\s?Gb/s"), lambda cell, node: float(cell[1]) * float(cell[2]) / node),
    (re.compile(r"(\d+)\s?Gb(?:ps|/s)\s?(?:per |/)node"), lambda cell, node: float(cell[1]) / node),
    (re.compile(r"8x HDR|HDR IB \(Selene\)"), lambda _, node: 8 * 200 / node),
)
"""Gbit/s of one GPU by what the words say, the first that fits; nodes share what they have among their GPUs. Selene's
nodes have eight HDR adapters of 200 Gbit/s (Narayanan et al. 2021, arXiv:2104.04473, section 5)."""


def network_bytes_per_s(row: MeasuredRow) -> float | None:
    """Network rate of one GPU, one direction, as a row's words describe it.

    >>> cell = "NVLink3; Omni-Path 4x100Gb/s per node"
    >>> network_bytes_per_s(MeasuredRow(1, {"interconnect": cell, "gpus_per_node": "8"})) / 1e9
    6.25
    >>> network_bytes_per_s(MeasuredRow(1, {"interconnect": "NVLink5; IB"})) is None
    True
    """
    words, node = row.text("interconnect"), row.count("gpus_per_node", 8)
    for pattern, gbit_per_s in RATES:
        if cell := pattern.search(words):
            return gbit_per_s(cell, node) * BYTES_PER_S_OF_GBIT
    return None
