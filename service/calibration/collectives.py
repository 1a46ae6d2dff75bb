"""Which constants of a link do published collectives give? Curves fitted in relative error, inside physical bounds.

The constants stand in `service/estimator/links.py`; a test fits them again and compares.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import combinations
from typing import Any

from service.estimator.links import ROOT_BYTES, Curve, InSwitch

JUDGED_BYTES = 1 << 20
"""From this size on a message is judged: what training sends is larger, and below it protocols change."""

SMALL_WEIGHT = 0.3
"""Weight of a smaller message in a fit, for its latency; a judged one weighs 1.
Source: a choice: the fixed cost of a kernel shows best where nothing else does."""

LAST_LINKED_RING = 4
"""Ranks up to which NCCL adds in rings although the switch could: 4 ranks are as fast with and without the switch."""

EDGES = tuple(step / 20 for step in range(-10, 21))
"""Extra steps of a ring that are tried: half a step less to one step more."""


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One measured collective."""

    gpu: str
    operation: str
    gpus: int
    domains: int
    message_bytes: float
    busbw_bytes_per_s: float
    in_switch: bool
    """Whether the switch may add."""
    note: str
    source: str

    @property
    def passes(self) -> int:
        """Times that a ring sends the tensor around: an all-reduce twice."""
        return 2 if self.operation == "all_reduce" else 1

    @property
    def took_seconds(self) -> float:
        """Seconds of the collective, from its bus bandwidth [s]."""
        return self.passes * (self.gpus - 1) / self.gpus * self.message_bytes / self.busbw_bytes_per_s


@cache
def collective_rows() -> tuple[CollectiveRow, ...]:
    """The measured collectives that the package ships.

    Returns:
        the rows, read once a process
    """
    text = files("service.calibration").joinpath("published/collectives.csv").read_text(encoding="utf-8")
    return tuple(
        CollectiveRow(
            gpu=row["gpu"],
            operation=row["operation"],
            gpus=int(row["gpus"]),
            domains=int(row["domains"]),
            message_bytes=float(row["message_bytes"]),
            busbw_bytes_per_s=float(row["busbw_gb_per_s"]) * 1e9,
            in_switch=row["in_switch"] != "off",
            note=row["note"],
            source=row["source"],
        )
        for row in csv.DictReader(io.StringIO(text))
    )


def fitted_curve(rows: Sequence[CollectiveRow], link_bytes_per_s: float, mesh: int = 0) -> Curve:
    """The curve of one operation in rings, by the least sum of squared relative errors.

    Args:
        rows: measurements of one operation on GPUs of one link
        link_bytes_per_s: the link's rate [byte/s]
        mesh: GPUs that the links of one GPU lead to in a mesh, 0 with a switch [1]

    Returns:
        the curve
    """

    def terms(row: CollectiveRow, edge: float) -> tuple[float, ...]:
        hops = row.passes * (row.gpus - 1)
        reach = (row.gpus - 1) / (mesh - 1) if mesh else 1.0
        wire = row.passes * (row.gpus - 1 + edge) / row.gpus * row.message_bytes / (link_bytes_per_s * reach)
        return 1.0, hops, (row.message_bytes / ROOT_BYTES) ** 0.5, wire

    fits = ((edge, *_least_squares(rows, partial(terms, edge=edge))) for edge in EDGES)
    edge, _, (start, hop, root, wire) = min(fits, key=lambda fit: fit[1])
    return Curve(start, hop, root, 1 / wire, edge)


def fitted_in_switch(rows: Sequence[CollectiveRow], link_bytes_per_s: float) -> InSwitch:
    """The curve of an all-reduce that the switch adds, and the highest bus bandwidth that any row reached.

    Args:
        rows: all-reduces of more ranks than NCCL leaves to rings, the switch at work
        link_bytes_per_s: the link's rate [byte/s]

    Returns:
        the curve
    """

    def terms(row: CollectiveRow) -> tuple[float, ...]:
        wire = (row.gpus + 1) / row.gpus * row.message_bytes / link_bytes_per_s
        return 1.0, (row.message_bytes / ROOT_BYTES) ** 0.5, wire

    _, (start, root, wire) = _least_squares(rows, terms)
    highest = max(row.busbw_bytes_per_s for row in rows) / link_bytes_per_s
    return InSwitch(start, root, 1 / wire, highest)


def _least_squares(
    rows: Sequence[CollectiveRow], terms: Callable[[CollectiveRow], tuple[float, ...]]
) -> tuple[float, tuple[float, ...]]:
    """Coefficients that are not negative, with the least sum of squared relative errors; the last one is positive."""
    import numpy as np

    weights = [1.0 if row.message_bytes >= JUDGED_BYTES else SMALL_WEIGHT for row in rows]
    table = np.array(
        [[w * term / row.took_seconds for term in terms(row)] for w, row in zip(weights, rows, strict=True)]
    )
    aim = np.array(weights)
    count = table.shape[1]
    best: tuple[float, Any] = (float("inf"), None)
    for size in range(1, count + 1):
        for kept in combinations(range(count), size):
            found = np.linalg.lstsq(table[:, kept], aim, rcond=None)[0]
            error = float(((table[:, kept] @ found - aim) ** 2).sum())
            if (found >= 0).all() and kept[-1] == count - 1 and error < best[0]:
                best = (error, np.zeros(count))
                best[1][list(kept)] = found
    return best[0], tuple(float(value) for value in best[1])
