"""A configuration is computed once for all its runs, and each answer is as if asked alone."""

from dataclasses import fields, replace

import pytest

from service.errors import Refused
from service.estimator import Cluster, Price, Question, estimate
from service.estimator.question import Checkpointing, OwnedPrice, RunStage
from service.estimator.resolve import configuration_of, resolve
from service.estimator.run.run import compute_configuration
from service.estimator.samples import sample_resolved

ASKED: Question = replace(sample_resolved().question, price=None)
RUNS = (
    replace(ASKED, recipe=replace(ASKED.recipe, training_tokens=1e12)),
    replace(ASKED, recipe=replace(ASKED.recipe, training_tokens=2e12), price=Price(usd_per_gpu_hour=2.0)),
    replace(
        ASKED,
        recipe=replace(ASKED.recipe, training_tokens=1e12, checkpoint=Checkpointing(interval_seconds=600.0)),
        cluster=replace(
            ASKED.cluster,
            failures_per_gpu_hour=1e-3,
            restart_seconds=60.0,
            spare_fraction=0.5,
            grid_region="USA",
            grid_kg_co2e_per_kwh=0.4,
            pue=1.5,
            busy_power_fraction=0.9,
            idle_power_fraction=0.3,
            host_power_fraction=1.0,
        ),
        price=OwnedPrice(purchase_usd=30_000.0, amortisation_years=4.0),
    ),
)
"""One configuration, in runs that differ in everything that belongs to a run."""


def test_runs_of_one_configuration_share_what_is_worked_out() -> None:
    assert len({id(configuration_of(run)) for run in RUNS}) == 1


@pytest.mark.parametrize("run", RUNS)
def test_an_answer_is_the_same_after_another_run_of_its_configuration(run: Question) -> None:
    compute_configuration.cache_clear()
    alone = estimate(run)
    compute_configuration.cache_clear()
    for other in RUNS:
        estimate(other)
    assert estimate(run) == alone


OF_RUN = {
    "failures_per_gpu_hour",
    "restart_seconds",
    "spare_fraction",
    "grid_region",
    "grid_kg_co2e_per_kwh",
    "pue",
    "busy_power_fraction",
    "idle_power_fraction",
    "host_power_fraction",
}

CONFIGURATION = {
    "sequence_length": replace(ASKED, recipe=replace(ASKED.recipe, sequence_length=4096, global_batch_tokens=None)),
    "power_limit_watts": replace(ASKED, cluster=replace(ASKED.cluster, power_limit_watts=500.0)),
    "tokens of a ramp": replace(
        ASKED,
        recipe=replace(ASKED.recipe, training_tokens=1e12, stages=(RunStage(until_tokens=1e11, sequence_length=4096),)),
    ),
}
"""Questions of other configurations."""


@pytest.mark.parametrize("asked", CONFIGURATION.values(), ids=CONFIGURATION)
def test_another_configuration_is_worked_out_anew(asked: Question) -> None:
    assert configuration_of(asked) is not configuration_of(ASKED)


def test_all_that_a_run_tells_of_its_cluster_is_left_out_of_its_configuration() -> None:
    told, plain = RUNS[-1].cluster, resolve(ASKED).question.cluster
    kept = configuration_of(RUNS[-1]).question.cluster
    of_run = {field.name for field in fields(Cluster) if getattr(kept, field.name) != getattr(told, field.name)}
    assert of_run == OF_RUN
    assert all(getattr(kept, name) == getattr(plain, name) for name in of_run)


def test_what_is_wrong_with_configuration_and_run_is_told_together() -> None:
    wrong = replace(
        ASKED,
        layout=replace(ASKED.layout, tensor=3, data=None, shard_group=None),
        recipe=replace(ASKED.recipe, checkpoint=Checkpointing(asynchronous=False)),
        price=OwnedPrice(amortisation_years=4.0),
    )
    with pytest.raises(Refused) as refused:
        estimate(wrong)
    codes = [problem.code for problem in refused.value.problems]
    assert codes == ["replica_divides_cluster", "stall_is_known", "purchase_price_is_known"]
