"""The plan of a batch is the fastest one near what is wanted, and the next larger micro-batch will not do."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from service.estimator import Layout, Recipe
from service.planner.feasibility import SolveLimits
from service.planner.solve import plan_batch
from service.planner.steps import outcome
from tests.ask import question
from tests.estimator.small_models import DENSE
from tests.planner.batches import BatchCase, asked_batch, batch_cases, wrong_batch


@given(case=batch_cases())
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
def test_no_other_batch_near_the_wanted_one_is_faster(case: BatchCase) -> None:
    """`.ci/proof solve` asks more questions."""
    assert wrong_batch(case, asked_batch(case)) == []


def test_a_schedule_in_groups_of_micro_batches_gets_whole_groups() -> None:
    """A step of one micro-batch breaks the rule of the schedule, and every micro-batch would."""
    layout = Layout(pipeline=4, virtual_pipeline=2)
    asked = question(replace(DENSE, num_hidden_layers=8), Recipe(sequence_length=1024), layout, gpus=8)
    wanted = replace(asked, recipe=replace(asked.recipe, global_batch=70))
    plan = outcome(plan_batch(wanted, SolveLimits())).plan
    assert plan is not None
    assert plan.accumulation % 4 == 0
    assert abs(plan.global_batch - 70) <= 4


def test_a_batch_that_is_no_whole_number_of_micro_batches_may_be_rounded_up() -> None:
    asked = question(DENSE, Recipe(sequence_length=1024, global_batch=13), gpus=2)
    case = BatchCase(asked, 13 * 1024, SolveLimits())
    found = asked_batch(case)
    assert wrong_batch(case, found) == []
    assert found is not None
    assert found.plan is not None
    assert found.plan.global_batch in {12, 14}
