"""How long do ranks take to send each other different bytes, all to all or one to its neighbour?"""

from service.estimator.network import NETWORK_HOP_SECONDS
from service.estimator.numeric import Amount, maximum, where
from service.estimator.rings import fixed_seconds, link_seconds
from service.estimator.wires import Group, Wires


def exchange_seconds(held_bytes: Amount, group: Group, wires: Wires, crossing_share: Amount = 1.0) -> Amount:
    """Seconds of one all-to-all in two levels: sorted by adapter inside each domain, then sent; both wires at once.

    Formula:
        a + r sqrt(S) + (l-1) a_link + (k-1) a_network + max(t_link, x (n-l)/n S/B_network)

    Args:
        held_bytes: bytes that one rank sends in all, S [byte]
        group: n ranks, l of them in one domain, k domains
        wires: rates of one GPU
        crossing_share: part of what is meant for other domains that crosses, where copies are made behind, x [1]

    Returns:
        seconds of one exchange [s]

    Source:
        definition; what leaves the domain does so on the adapter of the rank that it goes to (NCCL 2.12, PXN)

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(exchange_seconds(8e9, Group(8, 8, 1), w), 6)
    0.022419
    """
    curve = wires.link.all_to_all
    hops = (group.local - 1) * curve.hop_seconds + (group.domains - 1) * NETWORK_HOP_SECONDS
    crossing = crossing_share * (group.ranks - group.local) / group.ranks * held_bytes / wires.network_bytes_per_s
    wire = maximum(link_seconds(held_bytes, group.local, curve, wires), crossing)
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


def send_seconds(sent_bytes: Amount, group: Group, wires: Wires) -> Amount:
    """Seconds of a send to the neighbour; where a group spans domains, its slowest send is one between them.

    Formula:
        inside a domain: an exchange of two ranks that hold 2 S each;  between domains: a + r sqrt(2 S) + a_network +
        S/B_network

    Args:
        sent_bytes: bytes that are sent, S [byte]
        group: the ranks
        wires: rates of one GPU

    Returns:
        seconds of one send [s]

    Source:
        definition: NCCL sends and exchanges by the same kernel

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(send_seconds(8e9, Group(2, 2, 1), w), 6), round(send_seconds(8e9, Group(2, 1, 2), w), 6)
    (0.025688, 0.167044)
    """
    curve = wires.link.all_to_all
    linked = curve.hop_seconds + link_seconds(2 * sent_bytes, 2, curve, wires)
    crossing = NETWORK_HOP_SECONDS + sent_bytes / wires.network_bytes_per_s
    return fixed_seconds(2 * sent_bytes, curve) + where(group.domains > 1, crossing, linked)
