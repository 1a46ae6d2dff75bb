"""Laws of collective times, over links of every generation, sizes and groups."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any, get_args

import numpy as np
import pytest

from service.estimator.answer import CollectiveName
from service.estimator.degrees import Spacing, Transfer
from service.estimator.parallelism.data import micro_batch_transfers
from service.estimator.question import Cluster
from service.estimator.resolve import complete_cluster
from service.estimator.samples import H100, sample_degrees, sample_rank_load, sample_workload
from service.estimator.time.collectives import (
    HOST_BUS,
    LINKS,
    NETWORK_FRACTION,
    NVLINK_4,
    NVLINK_5,
    UNMEASURED,
    Interconnect,
    Link,
    crossing_share,
    interconnect_of,
    transfer_seconds,
)

KINDS: tuple[CollectiveName, ...] = get_args(CollectiveName)
ALL_LINKS: tuple[Link, ...] = tuple({id(row): row for row in (*LINKS.values(), UNMEASURED, HOST_BUS)}.values())
SIZES = (1.0, 1e3, 1e6, 3e7, 1e9, 4e10)
RANKS = (1, 2, 3, 4, 5, 8, 12, 16, 64, 72, 512, 4096)
STRIDES = (1, 2, 8, 64)
DOMAINS = (1, 8, 72)
MIB = float(1 << 20)


def wires(link: Link = NVLINK_4, domain: int = 8, **changes: Any) -> Interconnect:
    return replace(
        Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=domain, link=link, linked=max(2, domain)),
        **changes,
    )


def seconds(kind: CollectiveName, size_bytes: float, ranks: int, through: Interconnect, stride: int = 1) -> float:
    return float(transfer_seconds(Transfer(kind, size_bytes, 1, ranks, Spacing(stride)), through))


def cases() -> Iterator[tuple[CollectiveName, float, int, int, Interconnect]]:
    for link, domain, reduces in product(ALL_LINKS, DOMAINS, (False, True)):
        through = wires(link, domain, adds_in_network=reduces)
        for kind, size, ranks, stride in product(KINDS, SIZES, RANKS, STRIDES):
            yield kind, size, ranks, stride, through


def test_more_bandwidth_never_slows_a_transfer() -> None:
    for kind, size, ranks, stride, through in cases():
        slow = seconds(kind, size, ranks, through, stride)
        for rate in ("link_bytes_per_s", "network_bytes_per_s"):
            faster = replace(through, **{rate: 2 * getattr(through, rate)})
            assert seconds(kind, size, ranks, faster, stride) <= slow


def test_more_bytes_are_never_faster() -> None:
    for kind, size, ranks, stride, through in cases():
        assert seconds(kind, 1.1 * size, ranks, through, stride) >= seconds(kind, size, ranks, through, stride)


def test_a_group_of_one_and_nothing_to_send_are_free() -> None:
    for kind, _, ranks, stride, through in cases():
        assert seconds(kind, 0.0, ranks, through, stride) == 0
        assert seconds(kind, 1e9, 1, through, stride) == 0


def test_what_is_sent_takes_time_and_counts() -> None:
    for kind, size, ranks, stride, through in cases():
        if ranks > 1:
            once = seconds(kind, size, ranks, through, stride)
            assert once > 0
            assert transfer_seconds(Transfer(kind, size, 3, ranks, Spacing(stride)), through) == 3 * once


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all"])
def test_more_ranks_behind_a_switch_are_never_faster(kind: CollectiveName) -> None:
    for link, domain, size in product(ALL_LINKS, DOMAINS, SIZES):
        if not link.is_mesh:
            ranks = [*range(1, domain + 1), *(domain * domains for domains in (2, 3, 16, 500))]
            times = [seconds(kind, size, count, wires(link, domain)) for count in ranks]
            assert times == sorted(times)


def test_more_ranks_of_an_all_reduce_are_only_faster_where_the_switch_begins_to_add() -> None:
    for link, size in product(ALL_LINKS, SIZES):
        if not link.is_mesh:
            alone = replace(link, in_switch=None)
            times = [seconds("all_reduce", size, count, wires(alone)) for count in (*range(1, 9), 16, 24, 64, 4096)]
            assert times == sorted(times)
    eight, four = (seconds("all_reduce", 1e9, count, wires(NVLINK_4)) for count in (8, 4))
    assert eight < four


def test_a_sum_that_all_get_takes_no_less_than_one_that_is_shared_out() -> None:
    """Between many domains a tree of little latency may beat a ring of small messages, as it does in NCCL."""
    for link, size in product(ALL_LINKS, SIZES):
        for ranks in range(2, 9):
            shared = seconds("reduce_scatter", size, ranks, wires(link))
            assert seconds("all_reduce", size, ranks, wires(link)) >= shared
    for link, ranks in product(ALL_LINKS, RANKS):
        assert seconds("all_reduce", 4e10, ranks, wires(link)) >= seconds("reduce_scatter", 4e10, ranks, wires(link))


def test_small_groups_reach_less_of_a_switched_link() -> None:
    for kind in ("all_gather", "reduce_scatter", "all_reduce"):
        for link in (NVLINK_4, NVLINK_5):
            moved = [(ranks - 1) / ranks / seconds(kind, 1e9, ranks, wires(link)) for ranks in (2, 4, 8)]
            assert moved == sorted(moved), (kind, link.source)


def test_a_mesh_gives_a_pair_its_own_links_alone() -> None:
    mesh = wires(LINKS["CDNA3"], link_bytes_per_s=448e9)
    pair, all_of_it = (seconds("all_reduce", 4 * 1024 * MIB, ranks, mesh) for ranks in (2, 8))
    assert pair > 3 * all_of_it


def test_latency_of_rings_grows_with_domains_and_that_of_trees_with_their_doublings() -> None:
    few, many = (seconds("all_gather", 1e3, ranks, wires()) for ranks in (64, 1536))
    assert many / few == pytest.approx(1536 / 64, rel=0.1)
    few, many = (seconds("all_reduce", 1e3, ranks, wires()) for ranks in (64, 1536))
    assert many < 3 * few


def test_every_rank_of_a_domain_brings_its_adapter() -> None:
    """Where neighbours of a group are domains apart, each rank has one adapter; eight in a domain have eight."""
    alone, together = (seconds("all_gather", 1e11, 64, wires(), stride) for stride in (8, 1))
    assert alone == pytest.approx(8 * together, rel=0.02)
    assert alone == pytest.approx(63 / 64 * 1e11 / 48e9, rel=0.02)


def test_sharded_weights_travel_layer_by_layer_and_each_pays_for_its_hops() -> None:
    """Sums over a stage's units are those of all its weights; the latency of a ring is paid once a unit."""
    workload, degrees = sample_workload(), sample_degrees(data=512, zero_stage=3, reshard_after_forward=1)
    held = sample_rank_load(degrees).parameters
    gather = micro_batch_transfers(workload, degrees, held, 1)[0]
    units = workload.model.num_hidden_layers + 1
    assert (gather.collective, gather.count) == ("all_gather", 2 * units)
    assert gather.bytes * units == pytest.approx(held.dense * workload.state.gathered_bytes)
    at_once = replace(gather, bytes=gather.bytes * units, count=2)
    ring = 511 * NVLINK_4.all_gather.hop_seconds
    assert transfer_seconds(gather, wires()) - transfer_seconds(at_once, wires()) > 2 * (units - 1) * ring


def test_a_send_between_domains_takes_one_adapter() -> None:
    assert seconds("send", 1e9, 4, wires(), 8) == pytest.approx(1e9 / 48e9, rel=0.02)
    assert seconds("send", 1e9, 16, wires(), 1) == seconds("send", 1e9, 4, wires(), 8)
    assert seconds("send", 1e9, 4, wires(), 1) < seconds("send", 1e9, 4, wires(), 8)


def test_switches_between_domains_that_add_halve_an_all_reduce_and_nothing_else() -> None:
    slow = wires(network_bytes_per_s=24e9)
    adding = replace(slow, adds_in_network=True)
    for kind in KINDS:
        plain, added = (seconds(kind, 1e11, 256, through) for through in (slow, adding))
        assert plain / added == pytest.approx(2 if kind == "all_reduce" else 1, rel=0.02)
    assert seconds("all_reduce", 1e10, 8, adding) == seconds("all_reduce", 1e10, 8, slow)


def test_a_network_that_carries_less_than_its_adapters_slows_what_leaves_a_domain() -> None:
    cluster = complete_cluster(Cluster(gpu="h100", gpus=64, scale_up_gpus=8, inter_node_bytes_per_s=50e9), H100)
    full, thin = (interconnect_of(replace(cluster, network_oversubscription=times), H100) for times in (1.0, 7.0))
    assert full.network_bytes_per_s == 50e9 * NETWORK_FRACTION
    for kind in KINDS:
        assert seconds(kind, 1e12, 64, thin) == pytest.approx(7 * seconds(kind, 1e12, 64, full), rel=0.02)
        assert seconds(kind, 1e10, 8, thin) == seconds(kind, 1e10, 8, full)


def test_gpus_that_no_link_joins_talk_over_the_bus() -> None:
    lone, unknown = replace(H100, scale_up_gpus=1), replace(H100, architecture="Next")
    cluster = complete_cluster(Cluster(gpu="h", gpus=8, scale_up_gpus=8, inter_node_bytes_per_s=50e9), H100)
    links = [interconnect_of(cluster, gpu).link for gpu in (lone, H100, unknown)]
    assert links == [HOST_BUS, NVLINK_4, UNMEASURED]


@pytest.mark.parametrize(
    ("link", "link_rate", "adapter", "ranks", "published", "tolerance"),
    [
        pytest.param("Ampere", 300e9, 25e9, 64, 192e9, 0.03, id="DGX A100, 200 Gbit/s: NVIDIA/nccl issue 812"),
        pytest.param("Ampere", 300e9, 12.5e9, 24, 96e9, 0.03, id="3 x 8 A100, 4 adapters: NVIDIA/nccl-tests issue 119"),
        pytest.param("Hopper", 450e9, 50e9, 16, 430e9, 0.15, id="2 x 8 H100, RoCE: NVIDIA/nccl issue 1221"),
        pytest.param("Hopper", 450e9, 50e9, 32, 320e9, 0.21, id="4 x 8 H100, RoCE: NVIDIA/nccl issue 1221"),
        pytest.param("Hopper", 200e9, 50e9, 8, 215e9, 0.03, id="8 H800: NVIDIA/nccl issue 1374"),
    ],
)
def test_published_bus_bandwidths_that_no_constant_was_fitted_to(
    link: str, link_rate: float, adapter: float, ranks: int, published: float, tolerance: float
) -> None:
    """NETWORK_FRACTION was fitted to another network, and says these by name."""
    through = wires(LINKS[link], link_bytes_per_s=link_rate, network_bytes_per_s=adapter * NETWORK_FRACTION)
    size = 8 * 1024 * MIB
    reached = 2 * (ranks - 1) / ranks * size / seconds("all_reduce", size, ranks, through)
    assert reached == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduces", [False, True])
def test_columns_give_what_numbers_give(kind: CollectiveName, reduces: bool) -> None:
    random = Random(5)  # noqa: S311 - the same groups every time
    drawn = [
        (random.choice(SIZES) * random.random(), random.choice(RANKS), random.choice(STRIDES), random.randrange(4))
        for _ in range(200)
    ]
    sizes, ranks, strides, counts = (np.array(column, dtype=np.float64) for column in zip(*drawn, strict=True))
    for link, domain in product(ALL_LINKS, DOMAINS):
        through = wires(link, domain, adds_in_network=reduces)
        column = transfer_seconds(Transfer(kind, sizes, counts, ranks, Spacing(strides)), through)
        single: list[Any] = [
            transfer_seconds(Transfer(kind, size, count, group, Spacing(stride)), through)
            for size, group, stride, count in drawn
        ]
        assert np.array_equal(column, single)


def test_a_token_crosses_to_no_more_nodes_than_routing_allows() -> None:
    assert [crossing_share(8, 8, nodes) for nodes in (2, 4, 8)] == [0.25, 0.5, crossing_share(8, 8)]


def test_each_rank_of_a_domain_gets_a_token_once() -> None:
    wires = Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=8)
    each, once = (Transfer("all_to_all", 8e9, 1, 8, Spacing(1), "tokens", copies) for copies in (1.0, 8.0))
    share = transfer_seconds(once, wires) / transfer_seconds(each, wires)
    assert share == pytest.approx(crossing_share(8, 8), rel=0.01)
