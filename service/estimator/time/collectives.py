"""Seconds of each collective over links and network: rings, trees, switches that add, and exchanges."""

from service.estimator.degrees import Transfer
from service.estimator.numeric import Amount, both, maximum, minimum, square_root, where, where_needed
from service.estimator.time.links import (
    LARGEST_RING_FIRST,
    NETWORK_HOP_SECONDS,
    ROOT_BYTES,
    TREE_FRACTION,
    Curve,
    Group,
    InSwitch,
    Interconnect,
    group_of,
    ring_bytes,
    tree_bytes,
    tree_hop_seconds,
)


def link_seconds(tensor_bytes: Amount, local: Amount, curve: Curve, interconnect: Interconnect) -> Amount:
    """Seconds that a tensor takes over the fast links of one domain, once around, without latency.

    Formula:
        (l - 1 + c) / l S / (x B);  in a mesh of N, B (l - 1) / (N - 1) for B;  0 for a rank alone

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        local: ranks of the group in the domain, l [1]
        curve: what the operation reaches: edge c, share x
        interconnect: rates of one GPU: link B

    Returns:
        seconds [s]

    Source:
        Thakur et al. 2005, doi:10.1177/1094342005051521; c and x: service/estimator/time/links.py

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(link_seconds(8e9, 8, w.link.all_gather, w), 6)
    0.018085
    """
    steps = local - 1 + curve.edge_fraction * minimum(1, local - 1)
    seconds = steps / local * tensor_bytes / (interconnect.link_bytes_per_s * curve.link_fraction)
    return seconds * (interconnect.linked - 1) / maximum(1, local - 1) if interconnect.link.is_mesh else seconds


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
        service/estimator/time/links.py

    >>> from service.estimator.time.links import NVLINK_4
    >>> round(fixed_seconds(float(1 << 30), NVLINK_4.all_gather) * 1e6, 2)
    210.96
    """
    return curve.start_seconds + curve.root_seconds * square_root(tensor_bytes / ROOT_BYTES)


def around_seconds(
    tensor_bytes: Amount, group: Group, curve: Curve, linked_seconds: Amount, interconnect: Interconnect
) -> Amount:
    """Seconds that a tensor takes once around a ring through all ranks; links and adapters work at once.

    Formula:
        (n-k) a_link + (k-1) a_network + max(t_link, (n-1)/n S/(l B_network))

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain, k domains
        curve: of the operation: a_link
        linked_seconds: once around over the links of a domain, t_link [s]

    Returns:
        seconds [s]

    Source:
        NVIDIA/nccl src/graph/tuning.cc (ring)

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(around_seconds(8e9, Group(16, 8, 2), w.link.all_gather, 0.018, w), 6)
    0.019558
    """
    hops = (group.ranks - group.domains) * curve.hop_seconds + (group.domains - 1) * NETWORK_HOP_SECONDS
    crossing = ring_bytes(tensor_bytes, group.ranks, group.local) / interconnect.network_bytes_per_s
    return hops + maximum(linked_seconds, crossing)


def ring_seconds(tensor_bytes: Amount, group: Group, curve: Curve, interconnect: Interconnect) -> Amount:
    """Seconds of an all-gather or a reduce-scatter: once around.

    Formula:
        a + r sqrt(S) + t_around

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        curve: of the operation

    Returns:
        seconds of one collective [s]

    Source:
        Thakur et al. 2005, doi:10.1177/1094342005051521

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(ring_seconds(8e9, Group(8, 8, 1), w.link.all_gather, w), 6)
    0.018662
    """
    linked = link_seconds(tensor_bytes, group.local, curve, interconnect)
    return fixed_seconds(tensor_bytes, curve) + around_seconds(tensor_bytes, group, curve, linked, interconnect)


def tree_seconds(
    tensor_bytes: Amount, group: Group, curve: Curve, inside_seconds: Amount, interconnect: Interconnect
) -> Amount:
    """Seconds of an all-reduce by trees between domains, without its fixed cost.

    Formula:
        2 ((l-1) a_link + ceil(log2 k) a_network) + max(t_inside, min(2, k-1) S/(l B_network)) / y

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain, k domains
        curve: of the operation: a_link
        inside_seconds: sum over the links of each domain, t_inside [s]

    Returns:
        seconds [s]

    Source:
        NVIDIA/nccl src/graph/tuning.cc (tree); y: network.TREE_FRACTION

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(tree_seconds(8e9, Group(16, 8, 2), w.link.all_reduce, 0.036, w), 6)
    0.040036
    """
    crossing = tree_bytes(tensor_bytes, group.local, group.domains) / interconnect.network_bytes_per_s
    hops = 2 * (group.local - 1) * curve.hop_seconds + tree_hop_seconds(group.domains)
    return hops + maximum(inside_seconds, crossing) / TREE_FRACTION


def in_network_seconds(
    tensor_bytes: Amount, group: Group, curve: Curve, inside_seconds: Amount, interconnect: Interconnect
) -> Amount:
    """Seconds of an all-reduce that switches between domains add, without its fixed cost.

    Formula:
        2 ((l-1) a_link + a_network) + max(t_inside, S/(l B_network))

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain
        curve: of the operation: a_link
        inside_seconds: sum over the links of each domain, t_inside [s]

    Returns:
        seconds [s]

    Source:
        Graham et al. 2016, doi:10.1109/COMHPC.2016.006 (SHARP): each byte goes up once and comes down once

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(in_network_seconds(8e9, Group(64, 8, 8), w.link.all_reduce, 0.004, w), 6)
    0.02087
    """
    crossing = tensor_bytes / group.local / interconnect.network_bytes_per_s
    hops = 2 * ((group.local - 1) * curve.hop_seconds + NETWORK_HOP_SECONDS)
    return hops + maximum(inside_seconds, crossing)


def in_switch_seconds(tensor_bytes: Amount, local: Amount, curve: InSwitch, interconnect: Interconnect) -> Amount:
    """Seconds over the links of one domain whose switch adds: each rank sends all, and passes on its share.

    Formula:
        max((l+1)/l S / (x B), 2 (l-1)/l S / (z B))

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        local: ranks of the group in the domain, l [1]
        curve: share of the link x, highest bus bandwidth z
        interconnect: rates of one GPU: link B

    Returns:
        seconds [s]

    Source:
        bus bandwidths of 5 to 8 H200 and B200 follow (l-1)/(l+1): stas00/ml-engineering@744d01e network README

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(in_switch_seconds(8e9, 8, InSwitch(12.71e-6, 11.59e-6, 0.727, 1.067), w), 6)
    0.029158
    """
    least = 2 * (local - 1) / curve.most_fraction
    return maximum((local + 1) / curve.link_fraction, least) / local * tensor_bytes / interconnect.link_bytes_per_s


def all_reduce_seconds(tensor_bytes: Amount, group: Group, interconnect: Interconnect) -> Amount:
    """Seconds of an all-reduce: the fastest of rings, trees between domains, and switches that add.

    Formula:
        min(ring, tree, network that adds) across domains; min(ring, switch) inside one, rings alone up to 4 ranks

    Args:
        tensor_bytes: bytes of the whole tensor [byte]

    Returns:
        seconds of one all-reduce [s]

    Source:
        NVIDIA/nccl src/graph/tuning.cc (the fastest algorithm is taken)

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(all_reduce_seconds(8e9, Group(8, 8, 1), w), 6)
    0.030183
    """
    curve, switch = interconnect.link.all_reduce, interconnect.link.in_switch
    linked, fixed = link_seconds(tensor_bytes, group.local, curve, interconnect), fixed_seconds(tensor_bytes, curve)
    ring = fixed + 2 * around_seconds(tensor_bytes, group, curve, linked, interconnect)
    inside, added = 2 * linked, ring
    if switch is not None:
        through = in_switch_seconds(tensor_bytes, group.local, switch, interconnect)
        inside = minimum(inside, where(group.local > LARGEST_RING_FIRST, through, inside))
        added = where(group.ranks > LARGEST_RING_FIRST, fixed_seconds(tensor_bytes, switch) + through, ring)
    across = tree_seconds(tensor_bytes, group, curve, inside, interconnect)
    if interconnect.adds_in_network:
        across = minimum(across, in_network_seconds(tensor_bytes, group, curve, inside, interconnect))
    return minimum(ring, where(group.domains > 1, fixed + across, added))


def exchange_seconds(
    held_bytes: Amount, group: Group, interconnect: Interconnect, crossing_share: Amount = 1.0
) -> Amount:
    """Seconds of one all-to-all in two levels: sorted by adapter inside each domain, then sent; both wires at once.

    Formula:
        a + r sqrt(S) + (l-1) a_link + (k-1) a_network + max(t_link, x (n-l)/n S/B_network)

    Args:
        held_bytes: bytes that one rank sends in all, S [byte]
        group: n ranks, l of them in one domain, k domains
        crossing_share: part of what is meant for other domains that crosses, where copies are made behind, x [1]

    Returns:
        seconds of one exchange [s]

    Source:
        definition; what leaves the domain does so on the adapter of the rank that it goes to (NCCL 2.12, PXN)

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(exchange_seconds(8e9, Group(8, 8, 1), w), 6)
    0.022419
    """
    curve = interconnect.link.all_to_all
    hops = (group.local - 1) * curve.hop_seconds + (group.domains - 1) * NETWORK_HOP_SECONDS
    crossing = (
        crossing_share * (group.ranks - group.local) / group.ranks * held_bytes / interconnect.network_bytes_per_s
    )
    wire = maximum(link_seconds(held_bytes, group.local, curve, interconnect), crossing)
    return fixed_seconds(held_bytes, curve) + hops + wire


def crossing_share(copies: Amount, domains: Amount) -> Amount:
    """Part of the copies of a token meant for other domains that crosses, where each domain gets it once.

    Formula:
        k (1 - (1 - 1/k)^x) / x: domains that x copies reach by chance, of k, over the copies; 1 for one copy

    Args:
        copies: copies of each token, x [1]
        domains: domains of the group, k [1]

    Returns:
        share of the bytes [1]

    Source:
        definition; deepseek-ai/DeepEP README (forwarding from RDMA to NVLink)

    >>> crossing_share(1, 4), crossing_share(8, 2)
    (1.0, 0.2490234375)
    """
    return domains * (1 - (1 - 1 / domains) ** copies) / copies


def send_seconds(sent_bytes: Amount, group: Group, interconnect: Interconnect) -> Amount:
    """Seconds of a send to the neighbour; where a group spans domains, its slowest send is one between them.

    Formula:
        inside a domain: an exchange of two ranks that hold 2 S each;  between domains: a + r sqrt(2 S) + a_network +
        S/B_network

    Args:
        sent_bytes: bytes that are sent, S [byte]

    Returns:
        seconds of one send [s]

    Source:
        definition: NCCL sends and exchanges by the same kernel

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(send_seconds(8e9, Group(2, 2, 1), w), 6), round(send_seconds(8e9, Group(2, 1, 2), w), 6)
    (0.025688, 0.167044)
    """
    curve = interconnect.link.all_to_all
    linked = curve.hop_seconds + link_seconds(2 * sent_bytes, 2, curve, interconnect)
    crossing = NETWORK_HOP_SECONDS + sent_bytes / interconnect.network_bytes_per_s
    return fixed_seconds(2 * sent_bytes, curve) + where(group.domains > 1, crossing, linked)


def transfer_seconds(transfer: Transfer, wires: Interconnect) -> Amount:
    """Seconds of all occurrences of one transfer; 0 for a group of one.

    Formula:
        all-reduce: the fastest way; all-gather, reduce-scatter: one ring; all-to-all, send: two levels

    Returns:
        seconds [s]

    Source:
        see all_reduce_seconds, ring_seconds, exchange_seconds, send_seconds

    >>> from service.estimator.degrees import Spacing
    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(transfer_seconds(Transfer("all_reduce", 8e9, 1, 8, Spacing(1)), w), 6)
    0.030183
    """
    is_sent = both(transfer.ranks > 1, transfer.bytes > 0)
    return where_needed(is_sent, lambda: _once_seconds(transfer, wires), 0.0) * transfer.count


def _once_seconds(transfer: Transfer, interconnect: Interconnect) -> Amount:
    """Seconds of one occurrence in a group of several."""
    tensor_bytes, group = transfer.bytes, group_of(transfer.ranks, transfer.spacing, interconnect)
    if transfer.collective == "all_reduce":
        return all_reduce_seconds(tensor_bytes, group, interconnect)
    if transfer.collective == "all_gather":
        return ring_seconds(tensor_bytes, group, interconnect.link.all_gather, interconnect)
    if transfer.collective == "reduce_scatter":
        return ring_seconds(tensor_bytes, group, interconnect.link.reduce_scatter, interconnect)
    if transfer.collective == "all_to_all":
        return exchange_seconds(tensor_bytes, group, interconnect, crossing_share(transfer.copies, group.domains))
    return send_seconds(tensor_bytes, group, interconnect)
