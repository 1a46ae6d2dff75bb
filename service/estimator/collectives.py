"""How long do ranks take to exchange bytes? Rings on two levels: inside the fast link's domain, and between."""

from dataclasses import dataclass
from typing import Literal

from service.estimator.efficiency import (
    LINK_FRACTION,
    LINK_HOP_SECONDS,
    NETWORK_FRACTION,
    NETWORK_HOP_SECONDS,
)
from service.estimator.filled import filled
from service.estimator.gpu import Gpu
from service.estimator.numeric import Amount, ceil_div, floor_div, maximum, minimum, where
from service.estimator.question import Cluster

CollectiveName = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@dataclass(slots=True)
class Transfer:
    """A collective that one rank takes part in."""

    collective: CollectiveName
    """Which one."""
    bytes: Amount
    """Bytes of the whole tensor (all_to_all, send: bytes that one rank holds)."""
    count: Amount
    """How often."""
    ranks: Amount
    """Ranks of the group."""
    stride: Amount
    """Distance in rank numbers between neighbours of the group."""


@dataclass(slots=True, kw_only=True)
class Wires:
    """What one rank sends through."""

    link_bytes_per_s: float
    """Fast link as reached."""
    network_bytes_per_s: float
    """Adapter as reached."""
    domain: int
    """GPUs that share the fast link."""


def wires_of(cluster: Cluster, gpu: Gpu) -> Wires:
    """The rates that collectives reach on a cluster; a domain larger than the link reaches talks over the host's bus.

    Args:
        cluster: the cluster, resolved
        gpu: its GPU

    Returns:
        the wires of one GPU
    """
    domain = filled(cluster.scale_up_gpus)
    linked = gpu.scale_up_gpus >= min(domain, cluster.gpus)
    link = gpu.link_bytes_per_s if linked else min(gpu.link_bytes_per_s, gpu.host_bytes_per_s)
    network = filled(cluster.inter_node_bytes_per_s)
    return Wires(link_bytes_per_s=link * LINK_FRACTION, network_bytes_per_s=network * NETWORK_FRACTION, domain=domain)


def local_ranks(ranks: Amount, stride: Amount, domain: int) -> Amount:
    """Ranks of a group that share one fast-link domain.

    Formula:
        min(n, max(1, domain // stride))

    Args:
        ranks: ranks of the group, n [1]
        stride: distance between neighbours [1]
        domain: GPUs that share the fast link [1]

    Returns:
        ranks of the group in one domain [1]

    Source:
        definition; ranks are numbered tensor first, then context, data, pipeline (Megatron-Core order)

    >>> local_ranks(16, 2, 8)
    4
    """
    return minimum(ranks, maximum(1, floor_div(domain, stride)))


def ring_seconds(tensor_bytes: Amount, ranks: Amount, local: Amount, wires: Wires) -> Amount:
    """Seconds of one all-gather or reduce-scatter: inside each domain, and between domains.

    Formula:
        (l-1)/l S/B_link + (k-1)/k S/(l B_network) + (l-1) a_link + (k-1) a_network,  k = ceil(n / l)

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        ranks: ranks of the group, n [1]
        local: ranks of the group in one domain, l [1]
        wires: rates of one GPU

    Returns:
        seconds of one collective [s]

    Source:
        Thakur et al. 2005, doi:10.1177/1094342005051521; two levels: NCCL's per-rail rings

    >>> w = Wires(link_bytes_per_s=400e9, network_bytes_per_s=40e9, domain=8)
    >>> ring_seconds(8e9, 8, 8, w)
    0.017517500000000002
    """
    domains = ceil_div(ranks, local)
    inside = (local - 1) / local * tensor_bytes / wires.link_bytes_per_s
    between = (domains - 1) / domains * tensor_bytes / (local * wires.network_bytes_per_s)
    return inside + between + (local - 1) * LINK_HOP_SECONDS + (domains - 1) * NETWORK_HOP_SECONDS


def exchange_seconds(held_bytes: Amount, ranks: Amount, local: Amount, wires: Wires) -> Amount:
    """Seconds of one all-to-all.

    Formula:
        max((l-1)/n S/B_link, (n-l)/n S/B_network) + (l-1) a_link + (n/l-1) a_network

    Args:
        held_bytes: bytes that one rank sends in all, S [byte]
        ranks: ranks of the group, n [1]
        local: ranks of the group in one domain, l [1]
        wires: rates of one GPU

    Returns:
        seconds of one exchange [s]

    Source:
        definition; both wires work at once

    >>> w = Wires(link_bytes_per_s=400e9, network_bytes_per_s=40e9, domain=8)
    >>> exchange_seconds(8e9, 8, 8, w)
    0.017517500000000002
    """
    inside = (local - 1) / ranks * held_bytes / wires.link_bytes_per_s
    between = (ranks - local) / ranks * held_bytes / wires.network_bytes_per_s
    hops = (local - 1) * LINK_HOP_SECONDS + (ranks / local - 1) * NETWORK_HOP_SECONDS
    return maximum(inside, between) + hops


def transfer_seconds(transfer: Transfer, wires: Wires) -> Amount:
    """Seconds of all occurrences of one transfer; 0 for a group of one.

    Formula:
        all-reduce = 2 rings; all-gather, reduce-scatter = 1 ring; send = S / B

    Args:
        transfer: what is sent
        wires: rates of one GPU

    Returns:
        seconds [s]

    Source:
        see ring_seconds and exchange_seconds

    >>> w = Wires(link_bytes_per_s=400e9, network_bytes_per_s=40e9, domain=8)
    >>> transfer_seconds(Transfer("all_reduce", 8e9, 1, 8, 1), w)
    0.035035000000000004
    """
    ranks = transfer.ranks
    local = local_ranks(ranks, transfer.stride, wires.domain)
    if transfer.collective == "send":
        rate = where(local > 1, wires.link_bytes_per_s, wires.network_bytes_per_s)
        one = where(ranks > 1, transfer.bytes / rate + NETWORK_HOP_SECONDS, 0.0)
    elif transfer.collective == "all_to_all":
        one = exchange_seconds(transfer.bytes, ranks, local, wires)
    else:
        rings = 2 if transfer.collective == "all_reduce" else 1
        one = rings * ring_seconds(transfer.bytes, ranks, local, wires)
    return where(transfer.bytes > 0, one, 0.0) * transfer.count
