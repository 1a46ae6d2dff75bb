"""Which ranks share a node: counted rank by rank, as Megatron-Core numbers them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

import pytest

from service.errors import Refused
from service.estimator import Layout, Recipe, estimate
from service.estimator.degrees import ORDER_NUMBERS, Degrees, Spacing, local_ranks, replica_spacing, stage_spacing
from service.estimator.parallelism import data, pipeline
from service.estimator.question import RankOrder
from service.estimator.samples import LLAMA_3_8B, sample_degrees, sample_rank_load, sample_workload
from service.estimator.time.collectives import Interconnect, transfer_seconds
from tests.ask import question
from tests.estimator.small_models import FAMILIES

ORDERS: dict[RankOrder, tuple[str, ...]] = {
    "tp-cp-ep-dp-pp": ("tensor", "context", "data", "pipeline"),
    "tp-cp-ep-pp-dp": ("tensor", "context", "pipeline", "data"),
}
NODE = 8


def layouts() -> Iterator[tuple[RankOrder, Degrees]]:
    for order, tensor, context, replicas, stages in product(ORDERS, (1, 2, 4), (1, 2, 4), (1, 2, 4, 8), (1, 2, 4)):
        number = ORDER_NUMBERS[order]
        yield order, sample_degrees(tensor=tensor, context=context, data=replicas, pipeline=stages, rank_order=number)


def most_in_a_node(order: RankOrder, degrees: Degrees, group: tuple[str, ...]) -> int:
    """Ranks of one group of some axes in one node, by numbering all ranks axis by axis."""
    sizes = [int(getattr(degrees, axis)) for axis in ORDERS[order]]
    seen: Counter[tuple[int, ...]] = Counter()
    for rank in range(prod(sizes)):
        places = [rank // prod(sizes[:axis]) % size for axis, size in enumerate(sizes)]
        others = (place for axis, place in zip(ORDERS[order], places, strict=True) if axis not in group)
        seen[(rank // NODE, *others)] += 1
    return max(seen.values())


def test_ranks_in_a_node_are_those_that_are_counted() -> None:
    for order, degrees in layouts():
        ranks = degrees.data * degrees.context
        assert local_ranks(ranks, replica_spacing(degrees), NODE) == most_in_a_node(order, degrees, ("context", "data"))
        stages = local_ranks(degrees.pipeline, stage_spacing(degrees), NODE)
        assert stages == most_in_a_node(order, degrees, ("pipeline",))


@pytest.mark.parametrize(("step", "shared"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_ranks_with_the_same_shard(step: int, shared: int) -> None:
    assert local_ranks(16 / step, Spacing(1, run=2, gap=2, step=step), NODE) == shared


def test_stages_of_a_node_send_over_its_links_and_replicas_over_the_network() -> None:
    workload, wires = sample_workload(), Interconnect(link_bytes_per_s=450e9, network_bytes_per_s=48e9, domain=NODE)
    last, first = (sample_degrees(tensor=2, data=4, pipeline=2, rank_order=number) for number in (0, 1))
    sends = [transfer_seconds(pipeline.micro_batch_transfers(workload, one)[0], wires) for one in (last, first)]
    held = sample_rank_load().parameters
    sums = [
        sum(transfer_seconds(one, wires) for one in data.step_transfers(workload, degrees, held))
        for degrees in (last, first)
    ]
    assert sends[1] < sends[0] / 2
    assert sums[1] > 2 * sums[0]


@pytest.mark.parametrize("family", ["dense", "sparse"])
def test_on_a_uniform_network_the_order_of_ranks_changes_nothing(family: str) -> None:
    recipe, compared = Recipe(sequence_length=4096, global_batch=64), 0
    for tensor, context, stages, expert in product((1, 2, 4), (1, 2), (1, 2, 4), (1, 2, 4)):
        layout = Layout(tensor=tensor, context=context, pipeline=stages, expert=expert)
        try:
            told = [
                estimate(question(FAMILIES[family], recipe, replace(layout, rank_order=order), gpus=NODE))
                for order in ORDERS
            ]
        except Refused:
            continue
        assert told[0].memory == told[1].memory
        assert told[0].step == told[1].step
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("layout", [Layout(tensor=2), Layout(tensor=8, pipeline=2, data=1)])
def test_without_stages_or_replicas_the_order_of_ranks_changes_nothing(layout: Layout) -> None:
    recipe = Recipe(sequence_length=4096, global_batch=64)
    steps = [
        estimate(question(LLAMA_3_8B, recipe, replace(layout, rank_order=order), gpus=16)).step for order in ORDERS
    ]
    assert steps[0] == steps[1]
