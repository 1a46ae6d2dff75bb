"""How long does a sum over all ranks take: in rings, in trees between domains, or in the switch of one domain?"""

from service.estimator.links import Curve, InSwitch
from service.estimator.network import TREE_FRACTION, tree_bytes, tree_hop_seconds
from service.estimator.numeric import Amount, maximum, minimum, where
from service.estimator.rings import around_seconds, fixed_seconds, link_seconds
from service.estimator.wires import Group, Wires


def tree_seconds(tensor_bytes: Amount, group: Group, curve: Curve, linked_seconds: Amount, wires: Wires) -> Amount:
    """Seconds of an all-reduce in rings inside each domain and trees between domains, without its fixed cost.

    Formula:
        2 ((l-1) a_link + ceil(log2 k) a_network) + max(2 t_link, min(2, k-1) S/(l y B_network))

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain, k domains
        curve: of the operation: a_link
        linked_seconds: once around over the links of a domain, t_link [s]
        wires: rates of one GPU

    Returns:
        seconds [s]

    Source:
        NVIDIA/nccl src/graph/tuning.cc (tree); y: network.TREE_FRACTION

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(tree_seconds(8e9, Group(16, 8, 2), w.link.all_reduce, 0.018, w), 6)
    0.036036
    """
    crossing = tree_bytes(tensor_bytes, group.local, group.domains) / (wires.network_bytes_per_s * TREE_FRACTION)
    hops = 2 * (group.local - 1) * curve.hop_seconds + tree_hop_seconds(group.domains)
    return hops + maximum(2 * linked_seconds, crossing)


def in_switch_seconds(tensor_bytes: Amount, ranks: Amount, curve: InSwitch, wires: Wires) -> Amount:
    """Seconds of an all-reduce that the switch of one domain adds: each rank sends all, and passes on its share.

    Formula:
        a + r sqrt(S) + max((n+1)/n S / (x B), 2 (n-1)/n S / (z B))

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        ranks: ranks of the group, all in one domain, n [1]
        curve: share of the link x, highest bus bandwidth z
        wires: rates of one GPU: link B

    Returns:
        seconds of one collective [s]

    Source:
        bus bandwidths of 5 to 8 H200 and B200 follow (n-1)/(n+1): stas00/ml-engineering@744d01e network README

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(in_switch_seconds(8e9, 8, InSwitch(12.71e-6, 11.59e-6, 0.727, 1.067), w), 6)
    0.030183
    """
    least = 2 * (ranks - 1) / (ranks * curve.most_fraction)
    wire = maximum((ranks + 1) / (ranks * curve.link_fraction), least) * tensor_bytes / wires.link_bytes_per_s
    return fixed_seconds(tensor_bytes, curve) + wire


def all_reduce_seconds(tensor_bytes: Amount, group: Group, wires: Wires) -> Amount:
    """Seconds of an all-reduce: the fastest of rings, trees between domains, and the switch inside one domain.

    Formula:
        min(ring, tree) across domains, min(ring, switch) inside one

    Args:
        tensor_bytes: bytes of the whole tensor [byte]
        group: the ranks
        wires: rates of one GPU

    Returns:
        seconds of one all-reduce [s]

    Source:
        NVIDIA/nccl src/graph/tuning.cc (the fastest algorithm is taken)

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(all_reduce_seconds(8e9, Group(8, 8, 1), w), 6)
    0.030183
    """
    curve, switch = wires.link.all_reduce, wires.link.in_switch
    linked, fixed = link_seconds(tensor_bytes, group.local, curve, wires), fixed_seconds(tensor_bytes, curve)
    ring = fixed + 2 * around_seconds(tensor_bytes, group, curve, linked, wires)
    tree = fixed + tree_seconds(tensor_bytes, group, curve, linked, wires)
    inside = ring if switch is None else in_switch_seconds(tensor_bytes, group.ranks, switch, wires)
    return minimum(ring, where(group.domains > 1, tree, inside))
