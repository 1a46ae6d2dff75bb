"""Bandwidth and latency of links and network, and the seconds of each collective: rings, trees, switches, exchanges."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

from service.estimator.answer import CollectiveName
from service.estimator.complete import CompleteCluster
from service.estimator.constants import LinkCalibration, calibration_of
from service.estimator.degrees import Spacing, Transfer, local_ranks
from service.estimator.numeric import (
    Amount,
    both,
    ceil_div,
    doublings,
    maximum,
    minimum,
    square_root,
    where,
    where_needed,
)
from service.estimator.question import Gpu

ROOT_BYTES = float(1 << 20)
"""Size at which a curve's root term is given.
Source: definition, one MiB."""

LARGEST_RING_FIRST = 4
"""Ranks up to which an all-reduce goes in rings although the switch could add: 4 H200 or 4 B200 are as fast without.
Source: stas00/ml-engineering@744d01e network README, SHARP table."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of one operation in rings, by ranks and size."""

    start_seconds: float
    """Fixed cost of one collective."""
    hop_seconds: float
    root_seconds: float
    """What grows with the root of the size, given at one MiB: chunks fill a pipeline, protocols change."""
    link_fraction: float
    """Share of the link rate that a long ring reaches at large messages."""
    edge_fraction: float
    """Steps of a ring beyond ranks - 1: small groups reach less; below 0 on a bus, where they reach more."""


@dataclass(frozen=True, slots=True)
class InSwitch:
    """Seconds of an all-reduce that the switch between the GPUs adds."""

    start_seconds: float
    """Fixed cost of one collective."""
    root_seconds: float
    """What grows with the root of the size, given at one MiB."""
    link_fraction: float
    """Share of the link rate."""
    most_fraction: float
    """Highest bus bandwidth that was measured, over the link rate; above 1 where the switch saves the links work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What joins the GPUs of one domain."""

    all_reduce: Curve
    """Sum in rings; every rank has it."""
    all_gather: Curve
    """Every rank has all shards."""
    reduce_scatter: Curve
    """Sum in rings; every rank has a shard of it."""
    all_to_all: Curve
    """Every rank sends to every other; with two ranks a send."""
    in_switch: InSwitch | None = None
    is_mesh: bool = False
    """Each pair of GPUs has links of its own, so a group uses those between its ranks alone."""
    source: str
    """Where the measurements come from."""


_NCCL = "ai-dynamo/aiconfigurator@095f58a nccl_perf (NCCL {}, 2 to {} ranks, 64 KiB to 512 MiB)"
_NETWORK = "stas00/ml-engineering@744d01e network README"

NVLINK_3 = Link(
    all_reduce=Curve(11.51e-6, 1.257e-6, 15.17e-6, 0.829, 0.05),
    all_gather=Curve(7.88e-6, 0.594e-6, 11.60e-6, 0.794, 0.25),
    reduce_scatter=Curve(7.25e-6, 0.543e-6, 11.38e-6, 0.807, 0.05),
    all_to_all=Curve(10.02e-6, 0.591e-6, 9.09e-6, 0.770, 0.15),
    source=_NCCL.format("2.27", 8) + ", A100; VIA-Research/vTrain trace, A100, 1 MiB to 1 GiB; "
    "fitted by tests.calibration.links",
)
NVLINK_4 = Link(
    all_reduce=Curve(4.08e-6, 0.607e-6, 7.17e-6, 0.864, 0.10),
    all_gather=Curve(2.96e-6, 0.916e-6, 6.50e-6, 0.897, 0.30),
    reduce_scatter=Curve(3.56e-6, 0.627e-6, 5.05e-6, 0.869, 0.40),
    all_to_all=Curve(9.15e-6, 0.044e-6, 2.87e-6, 0.702, 0.0),
    in_switch=InSwitch(12.71e-6, 11.59e-6, 0.727, 1.067),
    source=_NCCL.format("2.29", 8) + f", H100 and H200; {_NETWORK}; fitted by tests.calibration.links",
)
NVLINK_5 = Link(
    all_reduce=Curve(4.36e-6, 1.278e-6, 7.13e-6, 0.812, 0.0),
    all_gather=Curve(5.67e-6, 1.293e-6, 5.34e-6, 0.852, 0.15),
    reduce_scatter=Curve(5.60e-6, 1.298e-6, 4.61e-6, 0.841, 0.35),
    all_to_all=Curve(12.72e-6, 0.405e-6, 1.68e-6, 0.730, 0.80),
    in_switch=InSwitch(18.49e-6, 13.07e-6, 0.627, 0.944),
    source=_NCCL.format("2.29", 8) + f", B200, B300, GB200 and GB300; {_NETWORK}; fitted by tests.calibration.links",
)
HOST_BUS = Link(
    all_reduce=Curve(0.19e-6, 2.630e-6, 9.19e-6, 0.363, -0.40),
    all_gather=Curve(3.87e-6, 2.423e-6, 7.11e-6, 0.349, -0.35),
    reduce_scatter=Curve(1.92e-6, 2.651e-6, 8.77e-6, 0.361, -0.30),
    all_to_all=Curve(2.78e-6, 3.275e-6, 4.23e-6, 0.302, -0.30),
    source=_NCCL.format("2.29", 8) + ", RTX PRO 6000 over PCIe 5; fitted by tests.calibration.links",
)
"""Where no fast link reaches the whole domain, its GPUs talk over the host's bus."""

_MEDIAN = "median of NVLink 3, 4 and 5"

UNMEASURED = Link(
    all_reduce=Curve(4.36e-6, 1.257e-6, 7.17e-6, 0.829, 0.05),
    all_gather=Curve(5.67e-6, 0.916e-6, 6.50e-6, 0.852, 0.25),
    reduce_scatter=Curve(5.60e-6, 0.627e-6, 5.05e-6, 0.841, 0.35),
    all_to_all=Curve(10.02e-6, 0.405e-6, 2.87e-6, 0.730, 0.15),
    source=_MEDIAN,
)
"""For a generation without a measurement.
Source: median of each constant of NVLink 3, 4 and 5."""

UNMEASURED_MESH = Link(
    all_reduce=Curve(4.36e-6, 1.257e-6, 7.17e-6, 0.721, 0.0),
    all_gather=Curve(5.67e-6, 0.916e-6, 6.50e-6, 0.721, 0.0),
    reduce_scatter=Curve(5.60e-6, 0.627e-6, 5.05e-6, 0.721, 0.0),
    all_to_all=Curve(10.02e-6, 0.405e-6, 2.87e-6, 0.721, 0.0),
    is_mesh=True,
    source=f"share of the links: all-reduce of 2 and of 8 MI300X at 4 GiB, {_NETWORK}; latencies: {_MEDIAN}",
)
CUBE_MESH = Link(
    all_reduce=Curve(2.50e-6, 4.852e-6, 15.05e-6, 0.922, -0.25),
    all_gather=Curve(2.50e-6, 4.852e-6, 7.52e-6, 0.922, -0.25),
    reduce_scatter=Curve(2.50e-6, 4.852e-6, 7.52e-6, 0.922, -0.25),
    all_to_all=Curve(10.02e-6, 0.405e-6, 2.87e-6, 0.721, 0.0),
    is_mesh=True,
    source="all-reduce: VIA-Research/vTrain trace, 2 to 8 V100, 1 MiB to 1 GiB; its halves are one ring each; "
    "all-to-all: as in other meshes",
)

LINKS: dict[str, Link] = {
    "Pascal": CUBE_MESH,
    "Volta": CUBE_MESH,
    "Ampere": NVLINK_3,
    "Hopper": NVLINK_4,
    "Hopper (Grace)": NVLINK_4,
    "Blackwell": NVLINK_5,
    "Blackwell (Grace)": NVLINK_5,
    "Blackwell Ultra": NVLINK_5,
    "Blackwell Ultra (Grace)": NVLINK_5,
    **dict.fromkeys(
        ("CDNA2", "CDNA3", "CDNA3 APU", "CDNA4", "Gaudi2", "Gaudi3", "Xe-HPC (Ponte Vecchio)"), UNMEASURED_MESH
    ),
}


def link_of(gpu: Gpu, *, reaches_all: bool) -> Link:
    """What joins the GPUs of a domain."""
    known = LINKS.get(gpu.architecture, UNMEASURED) if reaches_all else HOST_BUS
    calibration = calibration_of(gpu)
    return known if calibration is None or not calibration.links else measured_link(known, calibration.links)


def measured_link(known: Link, measured: Sequence[LinkCalibration]) -> Link:
    """A link whose curves are scaled to what was measured. A collective without a scale keeps its curve.

    >>> slower = LinkCalibration(collective="all_gather", fixed_fraction=2.0, link_fraction=0.5)

    >>> measured_link(NVLINK_4, [slower]).all_gather.link_fraction
    0.4485
    """
    changed: dict[str, Any] = {}
    for one in measured:
        curve: Curve = getattr(known, one.collective)
        changed[one.collective] = replace(
            curve,
            start_seconds=curve.start_seconds * one.fixed_fraction,
            hop_seconds=curve.hop_seconds * one.fixed_fraction,
            root_seconds=curve.root_seconds * one.fixed_fraction,
            link_fraction=curve.link_fraction * one.link_fraction,
        )
        if one.collective == "all_reduce" and known.in_switch is not None:
            changed["in_switch"] = replace(
                known.in_switch,
                start_seconds=known.in_switch.start_seconds * one.fixed_fraction,
                root_seconds=known.in_switch.root_seconds * one.fixed_fraction,
                link_fraction=known.in_switch.link_fraction * one.link_fraction,
                most_fraction=known.in_switch.most_fraction * one.link_fraction,
            )
    return replace(known, **changed, source=f"{known.source}; scaled to what was measured on the device")


NETWORK_FRACTION = 0.96
"""Share of the adapter's rate that rings reach at large messages: 47.9 of 50 GB/s for each of 32 B200 (EFA), 192 of 200
GB/s for a DGX A100 and 96 of 100 GB/s for 3 nodes of A100 (InfiniBand), 46 to 48 of 50 GB/s expected of NDR adapters.
Other networks reach less: 4 nodes of 8 H100 over RoCE 320 of 400 GB/s; more than a few racks are not measured here.
Source: stas00/ml-engineering@744d01e network README, fitted by tests.calibration.links; NVIDIA/nccl issues 812
and 1221, NVIDIA/nccl-tests issues 119 and 290."""

NETWORK_HOP_SECONDS = 14e-6
"""Latency of one hop between domains at large messages. 2 A100 over InfiniBand take 10 microseconds for small ones; EFA
takes about 60 a hop, so that messages of less than 256 MiB over it are slower than the formula says.
Source: NVIDIA/nccl src/graph/tuning.cc, hwLat of NET, Simple protocol; NVIDIA/nccl-tests issue 150."""

TREE_FRACTION = 0.9
"""Share of the wires' rates that a tree reaches, those inside its domains too.
Source: NVIDIA/nccl src/graph/tuning.cc (busBw of a tree)."""


@dataclass(slots=True, kw_only=True)
class Interconnect:
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
    uses_host_bus: bool = False
    """Whether the fast links reach fewer GPUs than a domain has, so that they talk over the host's bus."""


@dataclass(slots=True)
class Group:
    """Ranks that take part: how many, how many of them in one domain, in how many domains."""

    ranks: Amount
    local: Amount
    """Those in one domain, l."""
    domains: Amount


SWITCHED_GPUS = 8
"""GPUs that a link reaches only through a switch, or as a mesh of a whole node.
Source: NVIDIA HGX; bridges join 2 or 4."""


def interconnect_of(cluster: CompleteCluster, gpu: Gpu, network_scale: float = 1.0) -> Interconnect:
    """The rates of collectives on a cluster; a domain larger than the bridge between few GPUs uses the host's bus."""
    domain = cluster.scale_up_gpus
    linked = gpu.scale_up_gpus >= min(domain, cluster.gpus, SWITCHED_GPUS)
    rate = gpu.link_bytes_per_s if linked else min(gpu.link_bytes_per_s, gpu.host_bytes_per_s)
    network = cluster.inter_node_bytes_per_s
    return Interconnect(
        link_bytes_per_s=rate,
        network_bytes_per_s=network * NETWORK_FRACTION * network_scale / cluster.network_oversubscription,
        domain=domain,
        link=link_of(gpu, reaches_all=linked),
        linked=max(gpu.scale_up_gpus, domain) if linked else gpu.scale_up_gpus,
        adds_in_network=cluster.network_reduction,
        uses_host_bus=not linked,
    )


def group_of(ranks: Amount, spacing: Spacing, interconnect: Interconnect) -> Group:
    """How the ranks of a group are spread over domains."""
    local = local_ranks(ranks, spacing, interconnect.domain)
    return Group(ranks, local, ceil_div(ranks, local))


def link_seconds(tensor_bytes: Amount, local: Amount, curve: Curve, interconnect: Interconnect) -> Amount:
    """Seconds that a tensor takes over the fast links of one domain, once around, without latency.

    Formula: (l - 1 + c) / l S / (x B);  in a mesh of N, B (l - 1) / (N - 1) for B;  0 for a rank alone
    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        local: ranks of the group in the domain, l [1]
        curve: what the operation reaches: edge c, share x
        interconnect: rates of one GPU: link B
    Returns: seconds [s]
    Source: Thakur et al. 2005, doi:10.1177/1094342005051521; c and x: service/estimator/time/collectives.py

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(link_seconds(8e9, 8, w.link.all_gather, w), 6)
    0.018085
    """
    steps = local - 1 + curve.edge_fraction * minimum(1, local - 1)
    seconds = steps / local * tensor_bytes / (interconnect.link_bytes_per_s * curve.link_fraction)
    return seconds * (interconnect.linked - 1) / maximum(1, local - 1) if interconnect.link.is_mesh else seconds


def fixed_seconds(tensor_bytes: Amount, curve: Curve | InSwitch) -> Amount:
    """Seconds of a collective that do not shrink with more bandwidth, without the latency of its hops.

    Formula: a + r sqrt(S / 1 MiB)
    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        curve: of the operation: start a, root r
    Returns: seconds [s]
    Source: service/estimator/time/collectives.py

    >>> from service.estimator.time.collectives import NVLINK_4
    >>> round(fixed_seconds(float(1 << 30), NVLINK_4.all_gather) * 1e6, 2)
    210.96
    """
    return curve.start_seconds + curve.root_seconds * square_root(tensor_bytes / ROOT_BYTES)


def around_seconds(
    tensor_bytes: Amount, group: Group, curve: Curve, linked_seconds: Amount, interconnect: Interconnect
) -> Amount:
    """Seconds that a tensor takes once around a ring through all ranks; links and adapters work at once.

    Formula: (n-k) a_link + (k-1) a_network + max(t_link, (n-1)/n S/(l B_network))
    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain, k domains
        curve: of the operation: a_link
        linked_seconds: once around over the links of a domain, t_link [s]
    Returns: seconds [s]
    Source: NVIDIA/nccl src/graph/tuning.cc (ring: n-1 steps of S/n, as many rings as a domain has adapters)

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(around_seconds(8e9, Group(16, 8, 2), w.link.all_gather, 0.018, w), 6)
    0.019558
    """
    hops = (group.ranks - group.domains) * curve.hop_seconds + (group.domains - 1) * NETWORK_HOP_SECONDS
    sent_bytes = (group.ranks - 1) / group.ranks * tensor_bytes / group.local
    crossing = where(group.ranks > group.local, sent_bytes, 0.0) / interconnect.network_bytes_per_s
    return hops + maximum(linked_seconds, crossing)


def ring_seconds(tensor_bytes: Amount, group: Group, curve: Curve, interconnect: Interconnect) -> Amount:
    """Seconds of an all-gather or a reduce-scatter: once around.

    Formula: a + r sqrt(S) + t_around
    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        curve: of the operation
    Returns: seconds of one collective [s]
    Source: Thakur et al. 2005, doi:10.1177/1094342005051521

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

    Formula: 2 ((l-1) a_link + ceil(log2 k) a_network) + max(t_inside, min(2, k-1) S/(l B_network)) / y
    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain, k domains
        curve: of the operation: a_link
        inside_seconds: sum over the links of each domain, t_inside [s]
    Returns: seconds [s]
    Source:
        NVIDIA/nccl src/graph/tuning.cc (tree); Sanders et al. 2009, doi:10.1016/j.parco.2009.09.001 (two trees, each of
        half the tensor: in one up and down to two children, in the other up); y: collectives.TREE_FRACTION

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(tree_seconds(8e9, Group(16, 8, 2), w.link.all_reduce, 0.036, w), 6)
    0.040036
    """
    crossing = minimum(2, group.domains - 1) * tensor_bytes / group.local / interconnect.network_bytes_per_s
    hops = 2 * (group.local - 1) * curve.hop_seconds + 2 * doublings(group.domains) * NETWORK_HOP_SECONDS
    return hops + maximum(inside_seconds, crossing) / TREE_FRACTION


def in_network_seconds(
    tensor_bytes: Amount, group: Group, curve: Curve, inside_seconds: Amount, interconnect: Interconnect
) -> Amount:
    """Seconds of an all-reduce that switches between domains add, without its fixed cost.

    Formula: 2 ((l-1) a_link + a_network) + max(t_inside, S/(l B_network))
    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        group: n ranks, l of them in one domain
        curve: of the operation: a_link
        inside_seconds: sum over the links of each domain, t_inside [s]
    Returns: seconds [s]
    Source: Graham et al. 2016, doi:10.1109/COMHPC.2016.006 (SHARP): each byte goes up once and comes down once

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(in_network_seconds(8e9, Group(64, 8, 8), w.link.all_reduce, 0.004, w), 6)
    0.02087
    """
    crossing = tensor_bytes / group.local / interconnect.network_bytes_per_s
    hops = 2 * ((group.local - 1) * curve.hop_seconds + NETWORK_HOP_SECONDS)
    return hops + maximum(inside_seconds, crossing)


def in_switch_seconds(tensor_bytes: Amount, local: Amount, curve: InSwitch, interconnect: Interconnect) -> Amount:
    """Seconds over the links of one domain whose switch adds: each rank sends all, and passes on its share.

    Formula: max((l+1)/l S / (x B), 2 (l-1)/l S / (z B))
    Args:
        tensor_bytes: bytes of the whole tensor, S [byte]
        local: ranks of the group in the domain, l [1]
        curve: share of the link x, highest bus bandwidth z
        interconnect: rates of one GPU: link B
    Returns: seconds [s]
    Source: bus bandwidths of 5 to 8 H200 and B200 follow (l-1)/(l+1): stas00/ml-engineering@744d01e network README

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(in_switch_seconds(8e9, 8, InSwitch(12.71e-6, 11.59e-6, 0.727, 1.067), w), 6)
    0.029158
    """
    least = 2 * (local - 1) / curve.most_fraction
    return maximum((local + 1) / curve.link_fraction, least) / local * tensor_bytes / interconnect.link_bytes_per_s


def all_reduce_seconds(tensor_bytes: Amount, group: Group, interconnect: Interconnect) -> Amount:
    """Seconds of an all-reduce: the fastest of rings, trees between domains, and switches that add.

    Formula: min(ring, tree, network that adds) across domains; min(ring, switch) inside one, rings alone up to 4 ranks
    Args:
        tensor_bytes: bytes of the whole tensor [byte]
    Returns: seconds of one all-reduce [s]
    Source: NVIDIA/nccl src/graph/tuning.cc (the fastest algorithm is taken)

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
    held_bytes: Amount,
    group: Group,
    interconnect: Interconnect,
    crossing_share: Amount = 1.0,
    linked_share: Amount = 1.0,
) -> Amount:
    """Seconds of one all-to-all in two levels: sorted by adapter inside each domain, then sent; both wires at once.

    Formula: a + r sqrt(S) + (l-1) a_link + (k-1) a_network + max(y t_link, x (n-l)/n S/B_network)
    Args:
        held_bytes: bytes that one rank sends in all, S [byte]
        group: n ranks, l of them in one domain, k domains
        crossing_share: part of what is meant for other domains that crosses, where copies are made behind, x [1]
        linked_share: the same of ranks, and of the links, y [1]
    Returns: seconds of one exchange [s]
    Source: definition; what leaves the domain does so on the adapter of the rank that it goes to (NCCL 2.12, PXN)

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(exchange_seconds(8e9, Group(8, 8, 1), w), 6)
    0.022419
    """
    curve = interconnect.link.all_to_all
    hops = (group.local - 1) * curve.hop_seconds + (group.domains - 1) * NETWORK_HOP_SECONDS
    crossing = (
        crossing_share * (group.ranks - group.local) / group.ranks * held_bytes / interconnect.network_bytes_per_s
    )
    wire = maximum(linked_share * link_seconds(held_bytes, group.local, curve, interconnect), crossing)
    return fixed_seconds(held_bytes, curve) + hops + wire


def crossing_share(copies: Amount, domains: Amount, reach: float = inf) -> Amount:
    """Part of the copies of a token meant for other domains that crosses, where each domain gets it once.

    Formula: min(q, k (1 - (1 - 1/k)^x)) / x: domains that x copies reach by chance, of k, over the copies; 1 for one
    Args:
        copies: copies of each token, x [1]
        domains: domains of the group, or its ranks, k [1]
        reach: most domains that routing allows, q [1]
    Returns: share of the bytes [1]
    Source: definition; deepseek-ai/DeepEP README (forwarding from RDMA to NVLink)

    >>> crossing_share(1, 4), crossing_share(8, 2), crossing_share(8, 64, 4)
    (1.0, 0.2490234375, 0.5)
    """
    return minimum(reach, domains * (1 - (1 - 1 / domains) ** copies)) / copies


def send_seconds(sent_bytes: Amount, group: Group, interconnect: Interconnect) -> Amount:
    """Seconds of a send to the neighbour; where a group spans domains, its slowest send is one between them.

    Formula:
        inside a domain: an exchange of two ranks that hold 2 S each;  between domains: a + r sqrt(2 S) + a_network +
        S/B_network
    Args:
        sent_bytes: bytes that are sent, S [byte]
    Returns: seconds of one send [s]
    Source: definition: NCCL sends and exchanges by the same kernel

    >>> w = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    >>> round(send_seconds(8e9, Group(2, 2, 1), w), 6), round(send_seconds(8e9, Group(2, 1, 2), w), 6)
    (0.025688, 0.167044)
    """
    curve = interconnect.link.all_to_all
    linked = curve.hop_seconds + link_seconds(2 * sent_bytes, 2, curve, interconnect)
    crossing = NETWORK_HOP_SECONDS + sent_bytes / interconnect.network_bytes_per_s
    return fixed_seconds(2 * sent_bytes, curve) + where(group.domains > 1, crossing, linked)


def sent_bytes(collective: CollectiveName | Literal["copy"], tensor_bytes: Amount, ranks: Amount) -> Amount:
    """Bytes that one rank sends in one call of a collective in rings, which is the least without sums in switches.

    Formula:
        all_reduce: 2 (n - 1) / n S;  all_gather, reduce_scatter, all_to_all: (n - 1) / n S;  send, copy: S
    Args:
        collective: the collective
        tensor_bytes: bytes of the whole tensor (all_to_all, send, copy: bytes that one rank holds), S [byte]
        ranks: ranks that take part, n [1]
    Returns: bytes of one rank and call [byte]
    Source:
        Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002 (all-reduce); Thakur et al. 2005,
        doi:10.1177/1094342005051521

    >>> sent_bytes("all_reduce", 8e9, 8), sent_bytes("all_gather", 8e9, 8), sent_bytes("send", 8e9, 4)
    (14000000000.0, 7000000000.0, 8000000000.0)
    """
    if collective in {"send", "copy"}:
        return tensor_bytes
    once = (ranks - 1) / ranks * tensor_bytes
    return 2 * once if collective == "all_reduce" else once


def transfer_seconds(transfer: Transfer, wires: Interconnect) -> Amount:
    """Seconds of all occurrences of one transfer; 0 for a group of one.

    Formula: all-reduce: the fastest way; all-gather, reduce-scatter: one ring; all-to-all, send: two levels
    Returns: seconds [s]
    Source: see all_reduce_seconds, ring_seconds, exchange_seconds, send_seconds

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
        crossing = crossing_share(transfer.copies, group.domains, transfer.reach)
        linked = crossing_share(transfer.copies, group.ranks)
        return exchange_seconds(tensor_bytes, group, interconnect, crossing, linked)
    return send_seconds(tensor_bytes, group, interconnect)
