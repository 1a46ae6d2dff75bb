"""The value of an open field will do and the next one will not, whatever the question: asked again one by one."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from service.estimator import Recipe
from service.estimator.question import StackName
from service.estimator.samples import H100
from service.planner.feasibility import UNKNOWNS, SolveLimits
from service.planner.solve import solve_steps
from service.planner.steps import outcome
from tests.ask import question
from tests.estimator.small_models import FAMILIES
from tests.planner.thresholds import BOUNDS, Case, asked, cases, judged, wrong

NEAR = 10
"""Values beside each border that are asked again; `.ci/proof solve` asks more questions."""


@pytest.mark.parametrize(("name", "is_limited"), [(name, limited) for name in BOUNDS for limited in BOUNDS[name]])
@given(data=st.data())
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
def test_the_border_is_where_the_search_says(name: str, is_limited: bool, data: st.DataObject) -> None:
    case = data.draw(cases(name, is_limited=is_limited))
    found = asked(case)
    if found is None:
        assert not any(judged(case, value) for value in UNKNOWNS[name].values(case.question, 1)[:NEAR])
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
def test_a_larger_value_may_fit_where_a_smaller_one_does_not(family: str, stack: StackName, room_bytes: float) -> None:
    """The allocator gives back what it caches where memory ends, so that fitting is not monotone."""
    gpu = replace(H100, usable_bytes=room_bytes)
    recipe = Recipe(sequence_length=4096, stack=stack, recompute="full")
    asked_of = replace(question(FAMILIES[family], recipe), gpu=gpu)
    case = Case("recipe.micro_batch", asked_of, SolveLimits())
    found = outcome(solve_steps(asked_of, case.name, case.limits))
    fitting = [value for value in range(1, 200) if judged(case, value)]
    assert found.found is not None
    assert found.gap is not None
    assert found.found.value == fitting[-1]
    assert found.gap.value not in fitting
    assert fitting != list(range(1, fitting[-1] + 1))
