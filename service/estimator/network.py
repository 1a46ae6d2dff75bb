"""What does a network between domains reach, and what do rings and trees send over it?"""

from service.estimator.numeric import Amount, doublings, minimum, where

NETWORK_FRACTION = 0.96
"""Share of the adapter's rate that rings reach at large messages: 47.9 of 50 GB/s for each of 32 B200 (EFA), 192 of 200
GB/s for a DGX A100 and 96 of 100 GB/s for 3 nodes of A100 (InfiniBand), 46 to 48 of 50 GB/s expected of NDR adapters.
Other networks reach less: 4 nodes of 8 H100 over RoCE 320 of 400 GB/s; more than a few racks are not measured here.
Source: stas00/ml-engineering@744d01e network README, fitted by service.calibration.link_fit; NVIDIA/nccl issues 812
and 1221, NVIDIA/nccl-tests issues 119 and 290."""

NETWORK_HOP_SECONDS = 14e-6
"""Latency of one hop between domains at large messages. 2 A100 over InfiniBand take 10 microseconds for small ones; EFA
takes about 60 a hop, so that messages of less than 256 MiB over it are slower than is said here.
Source: NVIDIA/nccl src/graph/tuning.cc, hwLat of NET, Simple protocol; NVIDIA/nccl-tests issue 150."""

TREE_FRACTION = 0.9
"""Share of the wires' rates that a tree reaches, those inside its domains too.
Source: NVIDIA/nccl src/graph/tuning.cc (busBw of a tree)."""


def ring_bytes(tensor_bytes: Amount, ranks: Amount, local: Amount) -> Amount:
    """Bytes that one adapter sends while a ring through all ranks passes a tensor around once.

    Formula:
        (n-1)/n S / l  where the group spans several domains, else 0

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        ranks: ranks of the group, n [1]
        local: ranks of the group in one domain, each with an adapter of its own, l [1]

    Returns:
        bytes of one adapter [byte]

    Source:
        NVIDIA/nccl src/graph/tuning.cc: n-1 steps of S/n, as many rings as a domain has adapters

    >>> ring_bytes(8e9, 32, 8), ring_bytes(8e9, 8, 8)
    (968750000.0, 0.0)
    """
    return where(ranks > local, (ranks - 1) / ranks * tensor_bytes / local, 0.0)


def tree_bytes(tensor_bytes: Amount, local: Amount, domains: Amount) -> Amount:
    """Bytes that the busiest adapter sends in an all-reduce by two trees over the domains, each of half the tensor.

    Formula:
        min(2, k-1) S / l

    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        local: ranks of the group in one domain, l [1]
        domains: domains of the group, k [1]

    Returns:
        bytes of one adapter [byte]

    Source:
        Sanders et al. 2009, doi:10.1016/j.parco.2009.09.001: in one tree up and down to two children, in the other up

    >>> tree_bytes(8e9, 8, 2), tree_bytes(8e9, 8, 16)
    (1000000000.0, 2000000000.0)
    """
    return minimum(2, domains - 1) * tensor_bytes / local


def tree_hop_seconds(domains: Amount) -> Amount:
    """Latency of the way up and down a tree over the domains.

    Formula:
        2 ceil(log2 k) a_network

    Args:
        domains: domains of the group, k [1]

    Returns:
        seconds [s]

    Source:
        NVIDIA/nccl src/graph/tuning.cc (latency of a tree)

    >>> tree_hop_seconds(128) == 14 * NETWORK_HOP_SECONDS
    True
    """
    return 2 * doublings(domains) * NETWORK_HOP_SECONDS
