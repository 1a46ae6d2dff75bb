"""Published collectives, and the fit of the links and networks in `service/estimator/time`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from typing import Any

from service.calibration.tables import shipped_records
from service.estimator.answer import CollectiveName
from service.estimator.degrees import NEXT_TO_EACH_OTHER, Transfer
from service.estimator.time import collectives

SCORED_BYTES = 1 << 20
"""Least size of a scored message inside a domain: training sends larger ones, and below it protocols change."""
NETWORK_SCORED_BYTES = 1 << 26
"""The same between domains, where the latency of one kind of network rules what is smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Links of a measured GPU."""

    gpu: str
    """Catalogue name."""
    link: str
    """Name of the row in `service/estimator/time/collectives.py`."""
    link_bytes_per_s: float
    """Data-sheet rate of one GPU, one direction."""
    gpus: int
    adapter_bytes_per_s: float
    """Network adapter of one GPU, one direction."""


MACHINES = {machine.gpu: machine for machine in shipped_records(Machine, "machines")}
"""The machine of each measured GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One measured collective."""

    gpu: str
    """Catalogue name."""
    operation: CollectiveName
    gpus: int
    domains: int
    message_bytes: float
    """Bytes of the whole tensor; of what one rank holds (all_to_all)."""
    busbw_bytes_per_s: float
    """Bus bandwidth as nccl-tests define it."""
    in_switch: str
    """`off` where the switch may not add."""
    note: str
    """Reason why it does not represent others of its kind."""
    source: str
    """Source of the measurement."""

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
        """The machine of its GPUs."""
        return MACHINES[self.gpu]

    @property
    def is_scored(self) -> bool:
        """Whether it is as large as what training sends, and the switch does what it usually does."""
        least = SCORED_BYTES if self.domains == 1 else NETWORK_SCORED_BYTES
        return self.message_bytes >= least and self.in_switch != "off" and not self.note


@cache
def collective_rows() -> tuple[CollectiveRow, ...]:
    """The measured collectives that the package ships."""
    return shipped_records(CollectiveRow, "collectives", busbw_bytes_per_s=("busbw_gb_per_s", 1e9))


def predicted_seconds(row: CollectiveRow, link: collectives.Link) -> float:
    """The estimator's prediction of a measured collective [s]."""
    machine = row.machine
    interconnect = collectives.Interconnect(
        link_bytes_per_s=machine.link_bytes_per_s,
        network_bytes_per_s=machine.adapter_bytes_per_s * collectives.NETWORK_FRACTION,
        domain=row.gpus // row.domains,
        link=link,
        linked=machine.gpus,
    )
    transfer = Transfer(row.operation, row.message_bytes, 1, row.gpus, NEXT_TO_EACH_OTHER)
    return float(collectives.transfer_seconds(transfer, interconnect))


def mape_fraction(rows: Iterable[CollectiveRow], link: collectives.Link) -> float:
    """Mean size of the relative errors of predictions."""
    errors = [abs(predicted_seconds(row, link) / row.took_seconds - 1) for row in rows]
    return sum(errors) / len(errors)


SMALL_WEIGHT = 0.3
"""Weight of a message too small to be scored, for its latency; one that is scored weighs 1."""

EDGES = tuple(step / 20 for step in range(-10, 21))
"""Steps of a ring beyond ranks - 1 that are tried: half a step less to one step more."""

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def fitted_link(rows: Sequence[CollectiveRow], link: collectives.Link) -> collectives.Link:
    """A link with the curves that measurements inside one domain give, those of all-reduces in a switch included."""
    inside = [row for row in rows if row.domains == 1 and not row.note]
    sums = link.in_switch is not None
    summed = [
        row
        for row in inside
        if sums
        and row.operation == "all_reduce"
        and row.in_switch != "off"
        and row.gpus > collectives.LARGEST_RING_FIRST
    ]
    rings = [row for row in inside if row not in summed]
    curves: dict[str, Any] = {
        name: _fitted_curve(own, is_mesh=link.is_mesh)
        for name in OPERATIONS
        if (own := [row for row in rings if row.operation == name])
    }
    if not summed:
        return replace(link, **curves)

    def terms(row: CollectiveRow) -> tuple[float, ...]:
        wire = (row.gpus + 1) / row.gpus * row.message_bytes / row.machine.link_bytes_per_s
        return 1.0, (row.message_bytes / collectives.ROOT_BYTES) ** 0.5, wire

    _, (start, root, wire) = _least_squares(summed, terms)
    highest = max(row.busbw_bytes_per_s / row.machine.link_bytes_per_s for row in summed)
    return replace(link, **curves, in_switch=collectives.InSwitch(start, root, 1 / wire, highest))


def fitted_network_fraction(rows: Sequence[CollectiveRow]) -> float:
    """The share of an adapter's rate that rings between domains reach."""

    def terms(row: CollectiveRow) -> tuple[float, ...]:
        adapters = row.gpus // row.domains * row.machine.adapter_bytes_per_s
        return 1.0, row.passes * (row.gpus - 1) / row.gpus * row.message_bytes / adapters

    scored = [row for row in rows if row.domains > 1 and row.message_bytes >= NETWORK_SCORED_BYTES]
    return 1 / _least_squares(scored, terms)[1][1]


def _fitted_curve(rows: Sequence[CollectiveRow], *, is_mesh: bool) -> collectives.Curve:

    def terms(row: CollectiveRow, edge: float) -> tuple[float, ...]:
        hops = row.passes * (row.gpus - 1)
        reach = (row.gpus - 1) / (row.machine.gpus - 1) if is_mesh else 1.0
        around = (row.gpus - 1 + edge) / row.gpus * row.message_bytes / (row.machine.link_bytes_per_s * reach)
        return 1.0, hops, (row.message_bytes / collectives.ROOT_BYTES) ** 0.5, row.passes * around

    fits = ((edge, *_least_squares(rows, partial(terms, edge=edge))) for edge in EDGES)
    edge, _, (start, hop, root, wire) = min(fits, key=lambda fit: fit[1])
    return collectives.Curve(start, hop, root, 1 / wire, edge)


def _least_squares(
    rows: Sequence[CollectiveRow], terms: Callable[[CollectiveRow], tuple[float, ...]]
) -> tuple[float, tuple[float, ...]]:
    """The sum of squared relative errors, and its coefficients, none below zero and the last above."""
    import numpy as np

    weights = [1.0 if row.message_bytes >= SCORED_BYTES else SMALL_WEIGHT for row in rows]
    table = np.array(
        [[weight * term / row.took_seconds for term in terms(row)] for weight, row in zip(weights, rows, strict=True)]
    )
    aim = np.array(weights)
    last = table.shape[1] - 1
    best: tuple[float, Any] = (float("inf"), None)
    for size in range(last + 1):
        for chosen in combinations(range(last), size):
            columns = [*chosen, last]
            result = np.linalg.lstsq(table[:, columns], aim, rcond=None)[0]
            error = float(((table[:, columns] @ result - aim) ** 2).sum())
            if (result >= 0).all() and error < best[0]:
                coefficients = np.zeros(last + 1)
                coefficients[columns] = result
                best = (error, coefficients)
    return best[0], tuple(float(value) for value in best[1])
