"""Lost time follows Young and Daly, and rises with failures and with the cost of checkpoints."""

from dataclasses import replace
from itertools import pairwise

import pytest

from service.estimator import estimate
from service.estimator.answer import Totals
from service.estimator.question import Checkpointing, Cluster, Layout, Price, Question, Recipe
from service.estimator.run.totals import (
    checkpoint_waste_fraction,
    daly_interval_seconds,
    goodput_fraction,
    lost_work_fraction,
    restart_fraction,
    young_interval_seconds,
)
from service.estimator.samples import H100, LLAMA_3_8B

PLAIN = Question(
    model=LLAMA_3_8B,
    recipe=Recipe(sequence_length=8192, global_batch=4096, training_tokens=15e12),
    layout=Layout(),
    cluster=Cluster(gpu=H100.slug, gpus=4096),
    gpu=H100,
    price=Price(usd_per_gpu_hour=2.0),
)


def totals(question: Question) -> Totals:
    found = estimate(question).totals
    assert found is not None
    return found


def of_cluster(**changes: float) -> Totals:
    return totals(replace(PLAIN, cluster=replace(PLAIN.cluster, **changes)))  # type: ignore[arg-type]  # tests' own


def of_checkpoint(told: Checkpointing) -> Totals:
    return totals(replace(PLAIN, recipe=replace(PLAIN.recipe, checkpoint=told)))


def goodput(stall: float, between: float, interval: float, restart: float = 600.0) -> float:
    return goodput_fraction(
        checkpoint_waste_fraction(stall, interval),
        lost_work_fraction(interval, between),
        restart_fraction(restart, between),
    )


@pytest.mark.parametrize(
    ("gpus", "stall", "interval_minutes", "expected"),
    [(1_024, 30.0, 55, 0.979), (4_096, 30.0, 27, 0.952), (16_384, 30.0, 14, 0.887), (16_384, 300.0, 43, 0.778)],
)
def test_figures_of_a_mean_of_50_700_gpu_hours(gpus: int, stall: float, interval_minutes: int, expected: float) -> None:
    """Worked by hand for a restart of ten minutes."""
    between = 50_700 * 3600 / gpus
    interval = young_interval_seconds(stall, between)
    assert round(interval / 60) == interval_minutes
    assert goodput(stall, between, interval) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize("stall", [0.1, 10.0, 300.0])
@pytest.mark.parametrize("between", [2e3, 1e5, 1e7])
def test_no_other_interval_wastes_less_than_youngs(stall: float, between: float) -> None:
    best = young_interval_seconds(stall, between)
    others = [goodput(stall, between, best * factor) for factor in (0.8, 0.99, 1.01, 1.25)]
    assert goodput(stall, between, best) >= max(others)


def test_daly_is_young_less_the_stall_where_failures_are_rare() -> None:
    assert daly_interval_seconds(1.0, 1e9) == pytest.approx(young_interval_seconds(1.0, 1e9) - 1, rel=1e-5)
    assert daly_interval_seconds(500.0, 250.0) == 250.0


def test_lost_time_and_ideal_time_are_the_wall_time() -> None:
    for found in (totals(PLAIN), of_cluster(failures_per_gpu_hour=1e-3), of_checkpoint(Checkpointing(rule="daly"))):
        lost = sum(one.days for one in found.goodput.lost)
        assert found.ideal_days.value + lost == pytest.approx(found.days.value, rel=1e-12)
        assert found.ideal_days.value == pytest.approx(found.days.value * found.goodput_fraction, rel=1e-12)


def test_more_failures_longer_restarts_and_longer_stalls_cost_more_time() -> None:
    for changes in (
        [{"failures_per_gpu_hour": rate} for rate in (1e-7, 1e-5, 1e-3)],
        [{"restart_seconds": seconds} for seconds in (0.0, 600.0, 6000.0)],
    ):
        days = [of_cluster(**change).days.value for change in changes]
        assert all(one < other for one, other in pairwise(days))
    stalls = [of_checkpoint(Checkpointing(stall_seconds=seconds)).days.value for seconds in (1.0, 30.0, 300.0)]
    assert all(one < other for one, other in pairwise(stalls))


def test_a_stall_is_derived_from_what_is_written() -> None:
    written = 14 * 8_030_261_248
    quick, slow = (
        of_checkpoint(Checkpointing(asynchronous=is_quick, write_bytes_per_s=1e10)) for is_quick in (True, False)
    )
    assert slow.goodput.checkpoint_seconds == pytest.approx(written / 1e10)
    assert quick.goodput.checkpoint_seconds == pytest.approx(written / (4096 * H100.host_bytes_per_s))
    assert quick.days.value < slow.days.value


def test_a_file_is_written_before_the_next_checkpoint_begins() -> None:
    found = of_checkpoint(Checkpointing(write_bytes_per_s=1e7))
    assert found.goodput.checkpoint_interval_seconds == pytest.approx(14 * 8_030_261_248 / 1e7)


def hasty() -> Question:
    """Steps of several seconds, and a checkpoint asked for every second."""
    told = Checkpointing(interval_seconds=1.0)
    return replace(PLAIN, recipe=replace(PLAIN.recipe, global_batch=40_960, checkpoint=told))


def test_no_checkpoint_is_taken_within_a_step() -> None:
    found = estimate(hasty())
    assert found.totals is not None
    assert found.totals.goodput.checkpoint_interval_seconds == found.step.step_seconds.value > 1


def test_an_interval_that_cannot_be_kept_and_a_run_that_mostly_restarts_are_said() -> None:
    kept = replace(PLAIN, recipe=replace(PLAIN.recipe, checkpoint=Checkpointing(interval_seconds=3600.0)))
    assert not [said for said in estimate(kept).warnings if "checkpoints" in said]
    assert any("not every 1:" in said for said in estimate(hasty()).warnings)
    failing = replace(PLAIN, cluster=replace(PLAIN.cluster, failures_per_gpu_hour=3e-3))
    assert any("more time than training" in said for said in estimate(failing).warnings)


def test_an_own_interval_is_kept() -> None:
    assert of_checkpoint(Checkpointing(interval_seconds=1234.0)).goodput.checkpoint_interval_seconds == 1234.0


def test_spares_are_whole_nodes_that_are_paid_for_and_draw_power() -> None:
    plain, spared = totals(PLAIN), of_cluster(spare_fraction=0.001)
    assert (plain.spare_gpus, spared.spare_gpus) == (0, 8)
    assert spared.gpu_hours == plain.gpu_hours
    assert spared.billed_gpu_hours.value == pytest.approx(plain.gpu_hours.value * (4096 + 8) / 4096)
    drawn = 24 * plain.days.value * 8 * plain.gpu_idle_watts / 1000
    assert spared.energy_kwh.value - plain.energy_kwh.value == pytest.approx(drawn)
    assert spared.cost is not None
    assert [line.kind for line in spared.cost] == ["gpus", "spares"]


def test_spot_capacity_is_taken_back() -> None:
    price = Price(usd_per_gpu_hour=2.0, price_model="spot")
    held, spot, worse = (
        totals(replace(PLAIN, price=replace(price, preemptions_per_instance_hour=rate))) for rate in (0.0, None, 0.01)
    )
    assert held.days == totals(PLAIN).days
    assert held.days.value < spot.days.value < worse.days.value
    assert 3600 / spot.goodput.interruption_seconds == pytest.approx(4096 * 419 / (54 * 24 * 16_384) + 512 * 2.2e-4)
