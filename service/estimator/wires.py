"""What does one rank send through, and how is a group of ranks spread over it?"""

from dataclasses import dataclass

from service.estimator.filled import filled
from service.estimator.gpu import Gpu
from service.estimator.links import NVLINK_4, Link, link_of
from service.estimator.network import NETWORK_FRACTION
from service.estimator.numeric import Amount, ceil_div
from service.estimator.placement import Spacing, local_ranks
from service.estimator.question import Cluster


@dataclass(slots=True, kw_only=True)
class Wires:
    """What one rank sends through."""

    link_bytes_per_s: float
    """Fast link, data-sheet rate."""
    network_bytes_per_s: float
    """Adapter, as reached where all adapters send at once."""
    domain: int
    """GPUs that share the fast link."""
    link: Link = NVLINK_4
    """What the link's measured curves are."""
    linked: int = 8
    """GPUs that the fast links of one GPU lead to, itself counted."""
    adds_in_network: bool = False
    """Whether the switches between domains add."""


@dataclass(slots=True)
class Group:
    """Ranks that take part: how many, how many of them in one domain, in how many domains."""

    ranks: Amount
    """All of them, n."""
    local: Amount
    """Those in one domain, l."""
    domains: Amount
    """Domains, k."""


SWITCHED_GPUS = 8
"""GPUs that a link reaches only through a switch, or as a mesh of a whole node.
Source: NVIDIA HGX; bridges join 2 or 4."""


def wires_of(cluster: Cluster, gpu: Gpu, network_scale: float = 1.0) -> Wires:
    """The rates that collectives reach on a cluster.

    A domain larger than a bridge between few GPUs reaches talks over the host's bus; the switch of a whole node is one
    that larger domains have too.

    Args:
        cluster: the cluster, resolved
        gpu: its GPU
        network_scale: rate across domains inside a step over that of a benchmark [1]

    Returns:
        the wires of one GPU
    """
    domain = filled(cluster.scale_up_gpus)
    linked = gpu.scale_up_gpus >= min(domain, cluster.gpus, SWITCHED_GPUS)
    rate = gpu.link_bytes_per_s if linked else min(gpu.link_bytes_per_s, gpu.host_bytes_per_s)
    network = filled(cluster.inter_node_bytes_per_s)
    return Wires(
        link_bytes_per_s=rate,
        network_bytes_per_s=network * NETWORK_FRACTION * network_scale / cluster.network_oversubscription,
        domain=domain,
        link=link_of(gpu, reaches_all=linked),
        linked=max(gpu.scale_up_gpus, domain) if linked else gpu.scale_up_gpus,
        adds_in_network=cluster.network_reduction,
    )


def group_of(ranks: Amount, spacing: Spacing, wires: Wires) -> Group:
    """How the ranks of a group are spread over domains.

    Args:
        ranks: ranks of the group [1]
        spacing: how far apart they lie
        wires: wires of one GPU

    Returns:
        the group
    """
    local = local_ranks(ranks, spacing, wires.domain)
    return Group(ranks, local, ceil_div(ranks, local))
