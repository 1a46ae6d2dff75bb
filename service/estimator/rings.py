"""How long does a tensor take around a ring of ranks, inside a domain and through several?"""

from service.estimator.links import ROOT_BYTES, Curve, InSwitch
from service.estimator.network import NETWORK_HOP_SECONDS, ring_bytes
from service.estimator.numeric import Amount, maximum, minimum, square_root
from service.estimator.wires import Group, Wires


def link_seconds(tensor_bytes: Amount, local: Amount, curve: Curve, wires: Wires) -> Amount:
    """Seconds that a tensor takes over the fast links of one domain, once around, without latency.

    Formula:
        (l - 1 + c) / l S / (x B);  in a mesh of N, B (l - 1) / (N - 1) for B;  0 for a rank alone

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        local: ranks of the group in the domain, l [1]
        curve: what the operation reaches: edge c, share x
        wires: rates of one GPU: link B

    Returns:
        seconds [s]

    Source:
        Thakur et al. 2005, doi:10.1177/1094342005051521; c and x: service/estimator/links.py

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(link_seconds(8e9, 8, w.link.all_gather, w), 6)
    0.018085
    """
    steps = local - 1 + curve.edge_fraction * minimum(1, local - 1)
    seconds = steps / local * tensor_bytes / (wires.link_bytes_per_s * curve.link_fraction)
    return seconds * (wires.linked - 1) / maximum(1, local - 1) if wires.link.is_mesh else seconds


def fixed_seconds(tensor_bytes: Amount, curve: Curve | InSwitch) -> Amount:
    """Seconds of a collective that do not shrink with more bandwidth, without the latency of its hops.

    Formula:
        a + r sqrt(S / 1 MiB)

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        curve: of the operation: start a, root r

    Returns:
        seconds [s]

    Source:
        service/estimator/links.py

    >>> from service.estimator.links import NVLINK_4
    >>> round(fixed_seconds(float(1 << 30), NVLINK_4.all_gather) * 1e6, 2)
    210.96
    """
    return curve.start_seconds + curve.root_seconds * square_root(tensor_bytes / ROOT_BYTES)


def around_seconds(tensor_bytes: Amount, group: Group, curve: Curve, linked_seconds: Amount, wires: Wires) -> Amount:
    """Seconds that a tensor takes once around a ring through all ranks; links and adapters work at once.

    Formula:
        (n-k) a_link + (k-1) a_network + max(t_link, (n-1)/n S/(l B_network))

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain, k domains
        curve: of the operation: a_link
        linked_seconds: once around over the links of a domain, t_link [s]
        wires: rates of one GPU

    Returns:
        seconds [s]

    Source:
        NVIDIA/nccl src/graph/tuning.cc (ring)

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(around_seconds(8e9, Group(16, 8, 2), w.link.all_gather, 0.018, w), 6)
    0.019558
    """
    hops = (group.ranks - group.domains) * curve.hop_seconds + (group.domains - 1) * NETWORK_HOP_SECONDS
    crossing = ring_bytes(tensor_bytes, group.ranks, group.local) / wires.network_bytes_per_s
    return hops + maximum(linked_seconds, crossing)


def ring_seconds(tensor_bytes: Amount, group: Group, curve: Curve, wires: Wires) -> Amount:
    """Seconds of an all-gather or a reduce-scatter: once around.

    Formula:
        a + r sqrt(S) + t_around

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: the ranks
        curve: of the operation
        wires: rates of one GPU

    Returns:
        seconds of one collective [s]

    Source:
        Thakur et al. 2005, doi:10.1177/1094342005051521

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(ring_seconds(8e9, Group(8, 8, 1), w.link.all_gather, w), 6)
    0.018662
    """
    linked = link_seconds(tensor_bytes, group.local, curve, wires)
    return fixed_seconds(tensor_bytes, curve) + around_seconds(tensor_bytes, group, curve, linked, wires)
