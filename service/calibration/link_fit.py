"""Which constants of links and network do measured collectives give? Least relative errors, nothing below zero.

The constants are those of `service/estimator/time/links.py`; a test fits them again and compares.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from service.calibration.collectives import JUDGED_BYTES, NETWORK_JUDGED_BYTES, CollectiveRow
from service.estimator.time.links import LARGEST_RING_FIRST, ROOT_BYTES, Curve, InSwitch, Link

SMALL_WEIGHT = 0.3
"""Weight of a message too small to be judged, for its latency; one that is judged weighs 1."""

EDGES = tuple(step / 20 for step in range(-10, 21))
"""Steps of a ring beyond ranks - 1 that are tried: half a step less to one step more."""

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""What a link has a curve for."""


def fitted_link(rows: Sequence[CollectiveRow], link: Link) -> Link:
    """A link with the curves that measurements inside one domain give.

    Args:
        rows: measurements on GPUs of this link
        link: the link; an operation that no row measures keeps its curve

    Returns:
        the link with new curves
    """
    inside = [row for row in rows if row.domains == 1 and not row.note]
    summed = [row for row in inside if _may_add_in_switch(row)] if link.in_switch else []
    rings = [row for row in inside if row not in summed]
    curves: dict[str, Any] = {
        name: _fitted_curve(own, is_mesh=link.is_mesh)
        for name in OPERATIONS
        if (own := [row for row in rings if row.operation == name])
    }
    return replace(link, **curves, in_switch=_fitted_in_switch(summed) if summed else link.in_switch)


def fitted_network_fraction(rows: Sequence[CollectiveRow]) -> float:
    """The share of an adapter's rate that rings between domains reach.

    Args:
        rows: measurements between domains

    Returns:
        the share [1]
    """

    def terms(row: CollectiveRow) -> tuple[float, ...]:
        adapters = row.gpus // row.domains * row.machine.adapter_bytes_per_s
        return 1.0, row.passes * (row.gpus - 1) / row.gpus * row.message_bytes / adapters

    judged = [row for row in rows if row.domains > 1 and row.message_bytes >= NETWORK_JUDGED_BYTES]
    return 1 / _least_squares(judged, terms)[1][1]


def _may_add_in_switch(row: CollectiveRow) -> bool:
    return row.operation == "all_reduce" and row.in_switch and row.gpus > LARGEST_RING_FIRST


def _fitted_curve(rows: Sequence[CollectiveRow], *, is_mesh: bool) -> Curve:
    """The curve of one operation in rings."""

    def terms(row: CollectiveRow, edge: float) -> tuple[float, ...]:
        hops = row.passes * (row.gpus - 1)
        reach = (row.gpus - 1) / (row.machine.gpus - 1) if is_mesh else 1.0
        around = (row.gpus - 1 + edge) / row.gpus * row.message_bytes / (row.machine.link_bytes_per_s * reach)
        return 1.0, hops, (row.message_bytes / ROOT_BYTES) ** 0.5, row.passes * around

    fits = ((edge, *_least_squares(rows, partial(terms, edge=edge))) for edge in EDGES)
    edge, _, (start, hop, root, wire) = min(fits, key=lambda fit: fit[1])
    return Curve(start, hop, root, 1 / wire, edge)


def _fitted_in_switch(rows: Sequence[CollectiveRow]) -> InSwitch:
    """The curve of an all-reduce that the switch adds, and the highest bus bandwidth of any row."""

    def terms(row: CollectiveRow) -> tuple[float, ...]:
        wire = (row.gpus + 1) / row.gpus * row.message_bytes / row.machine.link_bytes_per_s
        return 1.0, (row.message_bytes / ROOT_BYTES) ** 0.5, wire

    _, (start, root, wire) = _least_squares(rows, terms)
    highest = max(row.busbw_bytes_per_s / row.machine.link_bytes_per_s for row in rows)
    return InSwitch(start, root, 1 / wire, highest)


def _least_squares(
    rows: Sequence[CollectiveRow], terms: Callable[[CollectiveRow], tuple[float, ...]]
) -> tuple[float, tuple[float, ...]]:
    """The sum of squared relative errors, and its coefficients, none below zero and the last above."""
    import numpy as np

    weights = [1.0 if row.message_bytes >= JUDGED_BYTES else SMALL_WEIGHT for row in rows]
    table = np.array(
        [[weight * term / row.took_seconds for term in terms(row)] for weight, row in zip(weights, rows, strict=True)]
    )
    aim = np.array(weights)
    last = table.shape[1] - 1
    best: tuple[float, Any] = (float("inf"), None)
    for size in range(last + 1):
        for kept in combinations(range(last), size):
            columns = [*kept, last]
            found = np.linalg.lstsq(table[:, columns], aim, rcond=None)[0]
            error = float(((table[:, columns] @ found - aim) ** 2).sum())
            if (found >= 0).all() and error < best[0]:
                coefficients = np.zeros(last + 1)
                coefficients[columns] = found
                best = (error, coefficients)
    return best[0], tuple(float(value) for value in best[1])
