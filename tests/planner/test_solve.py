"""Thresholds of open fields, and batches: the value does, the next does not, and single estimates agree."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from service.answers.plans import WhyNot
from service.errors import Problem, Refused
from service.estimator import Layout, Recipe
from service.estimator.question import Question, StackName
from service.estimator.samples import H100
from service.planner.feasibility import NONE, UNKNOWNS, Attempt, Attempts, MemoryShortfall, SolveLimits
from service.planner.solve import (
    MOST_REFUSED_IN_ALL,
    Threshold,
    largest_that_will_do,
    plan_batch,
    smallest_that_will_do,
    solve_steps,
)
from service.planner.steps import Steps, outcome
from tests.ask import question
from tests.estimator.small_models import DENSE, FAMILIES
from tests.planner.solutions import (
    BOUNDS,
    BatchCase,
    Case,
    asked,
    asked_batch,
    batch_cases,
    cases,
    does,
    wrong,
    wrong_batch,
)

ASKED: Question = question(DENSE, Recipe(sequence_length=1024))
TOO_MUCH = WhyNot(code="out_of_memory", message="too much")
RULE = Refused(Problem(field="recipe", code="rule", message="no", fix="another"))


class Made(Attempts):
    """A made-up field."""

    def __init__(self, is_legal: Callable[[int], bool], shortage: Callable[[int], MemoryShortfall | None]) -> None:
        self._attempts: dict[int, Attempt] = {}
        self._is_legal, self._shortage = is_legal, shortage

    def at(self, value: int) -> Steps[Attempt]:
        if not self._is_legal(value):
            made = Attempt(value=value, question=ASKED, refused=RULE, why_not=TOO_MUCH)
        else:
            short = self._shortage(value)
            made = Attempt(
                value=value, question=ASKED, refused=None, why_not=TOO_MUCH if short else None, shortfall=short or NONE
            )
        self._attempts[value] = made
        yield None
        return made


def told(border: Threshold) -> tuple[int | None, int | None]:
    """Both values."""
    found, beyond = border.found, border.beyond
    return None if found is None else found.value, None if beyond is None else beyond.value


def above(limit: int) -> Callable[[int], MemoryShortfall | None]:
    """Too much beyond a limit, whatever is given back."""
    return lambda value: MemoryShortfall(is_final=True) if value > limit else None


@given(stride=st.integers(1, 300), last=st.integers(0, 1 << 20), size=st.integers(1, 1 << 22))
def test_the_largest_of_sparse_values(stride: int, last: int, size: int) -> None:
    values = range(1, size + 1)
    attempts = Made(lambda value: value % stride == 0, above(last))
    border = outcome(largest_that_will_do(values, attempts, stride))
    legal = range(stride, size + 1, stride)
    do = [value for value in (last // stride * stride, size // stride * stride) if value in legal]
    most = min(do) if last >= stride and do else None
    beyond = (most or 0) + stride
    assert told(border) == (most, beyond if beyond in legal else None)


@given(
    first=st.integers(1, 1000), jump=st.integers(1, 1000), rest=st.integers(1, 1000), other=st.integers(1, 4000),
)  # fmt: skip
def test_a_border_that_is_crossed_twice(first: int, jump: int, rest: int, other: int) -> None:
    """Stage 0 holds too much from `first` until it gives back at `first + jump`; stage 1 from `other` on, for good."""
    back, end = first + jump, first + jump + rest

    def shortage(value: int) -> MemoryShortfall | None:
        if value > end:
            return MemoryShortfall(is_final=True)
        stages = {0} if first < value <= back else set()
        stages |= {1} if value > other else set()
        return MemoryShortfall(is_final=False, stages=frozenset(stages)) if stages else None

    border = outcome(largest_that_will_do(range(1, 10_001), Made(lambda _: True, shortage)))
    best = max(value for value in range(1, 10_001) if shortage(value) is None)
    assert told(border) == (best, best + 1)


@given(bad=st.sets(st.integers(1, 400)), stride=st.integers(1, 5))
def test_the_smallest_where_nothing_is_monotone(bad: set[int], stride: int) -> None:
    values = range(1, 1001)
    attempts = Made(
        lambda value: value % stride == 0, lambda value: MemoryShortfall(is_final=True) if value in bad else None
    )
    border = outcome(smallest_that_will_do(values, attempts))
    legal = range(stride, 1001, stride)
    least = next(value for value in legal if value not in bad)
    assert told(border) == (least, least - stride if least > stride else None)


@given(last=st.integers(0, 1 << 20), size=st.integers(1, 1 << 20))
def test_the_smallest_of_many(last: int, size: int) -> None:
    attempts = Made(lambda _: True, lambda value: MemoryShortfall(is_final=True) if value <= last else None)
    found, beyond = told(outcome(smallest_that_will_do(range(1, size + 1), attempts)))
    if last >= size:
        assert found is None
        assert beyond is not None
    else:
        assert (found, beyond) == (last + 1, last or None)


@pytest.mark.parametrize("search", [largest_that_will_do, smallest_that_will_do])
def test_a_field_without_a_legal_value_is_given_up_soon(search: Callable[..., Steps[Threshold]]) -> None:
    attempts = Made(lambda _: False, above(1))
    assert told(outcome(search(range(1, 1 << 26), attempts))) == (None, None)
    assert attempts.count <= MOST_REFUSED_IN_ALL + 100


NEAR = 10
"""Values beside each border that are asked again; `.ci/proof solve` asks more questions."""


@pytest.mark.parametrize(("name", "is_limited"), [(name, limited) for name in BOUNDS for limited in BOUNDS[name]])
@given(data=st.data())
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
def test_the_border_is_where_the_search_says(name: str, is_limited: bool, data: st.DataObject) -> None:
    case = data.draw(cases(name, is_limited=is_limited))
    found = asked(case)
    if found is None:
        assert not any(does(case, value) for value in UNKNOWNS[name].values(case.question, 1)[:NEAR])
        assume(False)
    assert found is not None
    assert wrong(case, found, NEAR) == []
    assert found.found is not None or found.beyond is not None
    assert found.beyond is None or found.beyond.why_not is not None


@pytest.mark.parametrize(
    ("family", "stack", "room_bytes"),
    [
        ("dense", "torchtitan", 56e9),
        ("dense", "torchtitan", 80e9),
        ("tied", "fsdp1", 58e9),
        ("windowed", "torchtitan", 56e9),
    ],
)
def test_no_larger_value_fits_where_a_smaller_one_does_not(family: str, stack: StackName, room_bytes: float) -> None:
    """The allocator fills the device with what it caches before it gives that back, so that fitting is monotone."""
    gpu = replace(H100, usable_bytes=room_bytes)
    recipe = Recipe(sequence_length=4096, stack=stack, recompute="full")
    asked_of = replace(question(FAMILIES[family], recipe), gpu=gpu)
    case = Case("recipe.micro_batch", asked_of, SolveLimits())
    found = outcome(solve_steps(asked_of, case.name, case.limits))
    fitting = [value for value in range(1, 200) if does(case, value)]
    assert found.found is not None
    assert found.gap is None
    assert found.found.value == fitting[-1]
    assert fitting == list(range(1, fitting[-1] + 1))


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
