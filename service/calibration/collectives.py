"""Which measured collectives come with the package, and how far are predictions from them?"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from service.calibration.tables import shipped_table
from service.estimator.degrees import NEXT_TO_EACH_OTHER, CollectiveName, Transfer
from service.estimator.time.collectives import transfer_seconds
from service.estimator.time.links import NETWORK_FRACTION, Link, Wires

JUDGED_BYTES = 1 << 20
"""From this size on a message inside a domain is judged: training sends larger ones, and below it protocols change."""

NETWORK_JUDGED_BYTES = 1 << 26
"""The same between domains, where the latency of one kind of network rules what is smaller."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the measured GPUs were joined by."""

    link: str
    """Name of the row in `service/estimator/time/links.py`."""
    link_bytes_per_s: float
    """Data-sheet rate of one GPU, one direction."""
    gpus: int = 8
    """GPUs that its links lead to."""
    adapter_bytes_per_s: float = 50e9
    """Network adapter of one GPU, one direction."""


MACHINES = {
    "v100-sxm2-32gb": Machine("CUBE_MESH", 150e9),
    "a100-sxm4-80gb": Machine("NVLINK_3", 300e9),
    "h100-sxm5-80gb": Machine("NVLINK_4", 450e9),
    "h200-sxm5-141gb": Machine("NVLINK_4", 450e9),
    "b200-sxm-180gb": Machine("NVLINK_5", 900e9),
    "b300-sxm-288gb": Machine("NVLINK_5", 900e9),
    "gb200-186gb": Machine("NVLINK_5", 900e9, gpus=72),
    "gb300-279gb": Machine("NVLINK_5", 900e9, gpus=72),
    "rtx-pro-6000-blackwell-server": Machine("HOST_BUS", 63e9),
    "l40s": Machine("HOST_BUS", 32e9),
    "mi300x-192gb": Machine("UNMEASURED_MESH", 448e9),
}
"""The machine of each measured GPU."""


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One measured collective."""

    gpu: str
    """Catalogue name."""
    operation: CollectiveName
    """Which collective."""
    gpus: int
    """Ranks, one a GPU."""
    domains: int
    """Domains of the fast link that they are in."""
    message_bytes: float
    """Bytes of the whole tensor; of what one rank holds (all_to_all)."""
    busbw_bytes_per_s: float
    """Bus bandwidth as nccl-tests define it."""
    in_switch: bool
    """Whether the switch may add."""
    note: str
    """Why it does not stand for others of its kind."""
    source: str
    """Who measured it."""

    @property
    def passes(self) -> int:
        """Times that a ring sends the tensor around: an all-reduce twice."""
        return 2 if self.operation == "all_reduce" else 1

    @property
    def took_seconds(self) -> float:
        """Seconds of the collective, from its bus bandwidth [s]."""
        return self.passes * (self.gpus - 1) / self.gpus * self.message_bytes / self.busbw_bytes_per_s

    @property
    def machine(self) -> Machine:
        """What its GPUs are joined by."""
        return MACHINES[self.gpu]

    @property
    def is_judged(self) -> bool:
        """Whether it is as large as what training sends, and the switch does what it usually does."""
        least = JUDGED_BYTES if self.domains == 1 else NETWORK_JUDGED_BYTES
        return self.message_bytes >= least and self.in_switch and not self.note


@cache
def collective_rows() -> tuple[CollectiveRow, ...]:
    """The measured collectives that the package ships.

    Returns:
        the rows, read once a process
    """
    return tuple(
        CollectiveRow(
            gpu=row["gpu"],
            operation=row["operation"],  # type: ignore[arg-type]  # the file is the package's own
            gpus=int(row["gpus"]),
            domains=int(row["domains"]),
            message_bytes=float(row["message_bytes"]),
            busbw_bytes_per_s=float(row["busbw_gb_per_s"]) * 1e9,
            in_switch=row["in_switch"] != "off",
            note=row["note"],
            source=row["source"],
        )
        for row in shipped_table("collectives")
    )


def predicted_seconds(row: CollectiveRow, link: Link) -> float:
    """What the estimator says of a measured collective.

    Args:
        row: the measurement
        link: curves of its link

    Returns:
        seconds [s]
    """
    machine = row.machine
    wires = Wires(
        link_bytes_per_s=machine.link_bytes_per_s,
        network_bytes_per_s=machine.adapter_bytes_per_s * NETWORK_FRACTION,
        domain=row.gpus // row.domains,
        link=link,
        linked=machine.gpus,
    )
    return float(transfer_seconds(Transfer(row.operation, row.message_bytes, 1, row.gpus, NEXT_TO_EACH_OTHER), wires))


def mape_fraction(rows: Iterable[CollectiveRow], link: Link) -> float:
    """Mean size of the relative errors of predictions.

    Args:
        rows: measurements, at least one
        link: curves of their link

    Returns:
        the mean [1]
    """
    errors = [abs(predicted_seconds(row, link) / row.took_seconds - 1) for row in rows]
    return sum(errors) / len(errors)
