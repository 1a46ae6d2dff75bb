"""How long do the transfers of a rank take? Each collective by its own way over links and network."""

from service.estimator.all_reduce import all_reduce_seconds
from service.estimator.exchange import crossing_share, exchange_seconds, send_seconds
from service.estimator.numeric import Amount, both, where_needed
from service.estimator.placement import Transfer
from service.estimator.rings import ring_seconds
from service.estimator.wires import Wires, group_of


def transfer_seconds(transfer: Transfer, wires: Wires) -> Amount:
    """Seconds of all occurrences of one transfer; 0 for a group of one.

    Formula:
        all-reduce: the fastest way; all-gather, reduce-scatter: one ring; all-to-all, send: two levels

    Args:
        transfer: what is sent
        wires: rates of one GPU

    Returns:
        seconds [s]

    Source:
        see all_reduce_seconds, ring_seconds, exchange_seconds, send_seconds

    >>> from service.estimator.placement import Spacing
    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(transfer_seconds(Transfer("all_reduce", 8e9, 1, 8, Spacing(1)), w), 6)
    0.030183
    """
    is_sent = both(transfer.ranks > 1, transfer.bytes > 0)
    return where_needed(is_sent, lambda: _once_seconds(transfer, wires), 0.0) * transfer.count


def _once_seconds(transfer: Transfer, wires: Wires) -> Amount:
    """Seconds of one occurrence in a group of several."""
    tensor_bytes, group = transfer.bytes, group_of(transfer.ranks, transfer.spacing, wires)
    if transfer.collective == "all_reduce":
        return all_reduce_seconds(tensor_bytes, group, wires)
    if transfer.collective == "all_gather":
        return ring_seconds(tensor_bytes, group, wires.link.all_gather, wires)
    if transfer.collective == "reduce_scatter":
        return ring_seconds(tensor_bytes, group, wires.link.reduce_scatter, wires)
    if transfer.collective == "all_to_all":
        return exchange_seconds(tensor_bytes, group, wires, crossing_share(transfer.copies, group.domains))
    return send_seconds(tensor_bytes, group, wires)
