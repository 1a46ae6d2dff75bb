"""How long does a sum over all ranks take: in rings, in trees between domains, or in switches that add?"""

from service.estimator.links import LARGEST_RING_FIRST, Curve, InSwitch
from service.estimator.network import NETWORK_HOP_SECONDS, TREE_FRACTION, tree_bytes, tree_hop_seconds
from service.estimator.numeric import Amount, maximum, minimum, where
from service.estimator.rings import around_seconds, fixed_seconds, link_seconds
from service.estimator.wires import Group, Wires


def tree_seconds(tensor_bytes: Amount, group: Group, curve: Curve, inside_seconds: Amount, wires: Wires) -> Amount:
    """Seconds of an all-reduce by trees between domains, without its fixed cost.

    Formula:
        2 ((l-1) a_link + ceil(log2 k) a_network) + max(t_inside, min(2, k-1) S/(l B_network)) / y

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain, k domains
        curve: of the operation: a_link
        inside_seconds: sum over the links of each domain, t_inside [s]
        wires: rates of one GPU

    Returns:
        seconds [s]

    Source:
        NVIDIA/nccl src/graph/tuning.cc (tree); y: network.TREE_FRACTION

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(tree_seconds(8e9, Group(16, 8, 2), w.link.all_reduce, 0.036, w), 6)
    0.040036
    """
    crossing = tree_bytes(tensor_bytes, group.local, group.domains) / wires.network_bytes_per_s
    hops = 2 * (group.local - 1) * curve.hop_seconds + tree_hop_seconds(group.domains)
    return hops + maximum(inside_seconds, crossing) / TREE_FRACTION


def in_network_seconds(
    tensor_bytes: Amount, group: Group, curve: Curve, inside_seconds: Amount, wires: Wires
) -> Amount:
    """Seconds of an all-reduce that switches between domains add, without its fixed cost.

    Formula:
        2 ((l-1) a_link + a_network) + max(t_inside, S/(l B_network))

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain
        curve: of the operation: a_link
        inside_seconds: sum over the links of each domain, t_inside [s]
        wires: rates of one GPU

    Returns:
        seconds [s]

    Source:
        Graham et al. 2016, doi:10.1109/COMHPC.2016.006 (SHARP): each byte goes up once and comes down once

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(in_network_seconds(8e9, Group(64, 8, 8), w.link.all_reduce, 0.004, w), 6)
    0.02087
    """
    crossing = tensor_bytes / group.local / wires.network_bytes_per_s
    hops = 2 * ((group.local - 1) * curve.hop_seconds + NETWORK_HOP_SECONDS)
    return hops + maximum(inside_seconds, crossing)


def in_switch_seconds(tensor_bytes: Amount, local: Amount, curve: InSwitch, wires: Wires) -> Amount:
    """Seconds over the links of one domain whose switch adds: each rank sends all, and passes on its share.

    Formula:
        max((l+1)/l S / (x B), 2 (l-1)/l S / (z B))

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        local: ranks of the group in the domain, l [1]
        curve: share of the link x, highest bus bandwidth z
        wires: rates of one GPU: link B

    Returns:
        seconds [s]

    Source:
        bus bandwidths of 5 to 8 H200 and B200 follow (l-1)/(l+1): stas00/ml-engineering@744d01e network README

    >>> w = Wires(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(in_switch_seconds(8e9, 8, InSwitch(12.71e-6, 11.59e-6, 0.727, 1.067), w), 6)
    0.029158
    """
    least = 2 * (local - 1) / curve.most_fraction
    return maximum((local + 1) / curve.link_fraction, least) / local * tensor_bytes / wires.link_bytes_per_s


def all_reduce_seconds(tensor_bytes: Amount, group: Group, wires: Wires) -> Amount:
    """Seconds of an all-reduce: the fastest of rings, trees between domains, and switches that add.

    Formula:
        min(ring, tree, network that adds) across domains; min(ring, switch) inside one, rings alone up to 4 ranks

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
    inside, added = 2 * linked, ring
    if switch is not None:
        through = in_switch_seconds(tensor_bytes, group.local, switch, wires)
        inside = minimum(inside, where(group.local > LARGEST_RING_FIRST, through, inside))
        added = where(group.ranks > LARGEST_RING_FIRST, fixed_seconds(tensor_bytes, switch) + through, ring)
    across = tree_seconds(tensor_bytes, group, curve, inside, wires)
    if wires.adds_in_network:
        across = minimum(across, in_network_seconds(tensor_bytes, group, curve, inside, wires))
    return minimum(ring, where(group.domains > 1, fixed + across, added))
