"""Which network do the words of a table describe? The rate of one GPU between nodes, where they name one."""

import re
from collections.abc import Callable

from service.calibration.tables import MeasuredRow

BYTES_PER_S_OF_GBIT = 1e9 / 8

RATES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int], float]], ...] = (
    (re.compile(r"(\d+)\s?Gb/s per GPU"), lambda said, _: float(said[1])),
    (re.compile(r"(\d+)x\s?(\d+)\s?Gb/s"), lambda said, node: float(said[1]) * float(said[2]) / node),
    (re.compile(r"(\d+)x HDR (?:IB )?(\d+)\s?Gb/s"), lambda said, node: float(said[1]) * float(said[2]) / node),
    (re.compile(r"(\d+)\s?Gb(?:ps|/s)\s?(?:per |/)node"), lambda said, node: float(said[1]) / node),
    (re.compile(r"8x HDR|HDR IB \(Selene\)"), lambda _, node: 8 * 200 / node),
)
"""Gbit/s of one GPU by what the words say, the first that fits; nodes share what they have among their GPUs. Selene's
nodes have eight HDR adapters of 200 Gbit/s (Narayanan et al. 2021, arXiv:2104.04473, section 5)."""


def network_bytes_per_s(row: MeasuredRow) -> float | None:
    """Network rate of one GPU, one direction, as a row's words describe it.

    Args:
        row: the row

    Returns:
        bytes a second; None where the row names no rate, so that the GPU's usual adapter is meant

    >>> said = "NVLink3; Omni-Path 4x100Gb/s per node"
    >>> network_bytes_per_s(MeasuredRow(1, {"interconnect": said, "gpus_per_node": "8"})) / 1e9
    6.25
    >>> network_bytes_per_s(MeasuredRow(1, {"interconnect": "NVLink5; IB"})) is None
    True
    """
    words, node = row.text("interconnect"), row.count("gpus_per_node", 8)
    for pattern, gbit_per_s in RATES:
        if said := pattern.search(words):
            return gbit_per_s(said, node) * BYTES_PER_S_OF_GBIT
    return None
