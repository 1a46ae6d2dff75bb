"""Values of open fields: divisors, widths in proportion, bounds that the fields themselves say."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.estimator import Cluster, Layout, Model, Question, Recipe, count_parameters, estimate
from service.estimator.rule import MOST_PRIME, divisors
from service.estimator.samples import H100
from service.planner.feasibility import UNKNOWNS, field_bounds, width_unit, with_width
from tests.ask import question
from tests.estimator.small_models import DENSE, FAMILIES

MODELS = {row.slug: row.model for row in shipped_catalogue().models.values() if row.model is not None}


@given(number=st.integers(1, 1 << 20))
def test_divisors_are_all_that_divide(number: int) -> None:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    assert divisors(number) == sorted({*small, *(number // d for d in small)})


@settings(max_examples=20)
@given(small=st.integers(1, 1000), large=st.sampled_from((1_000_003, 1_000_003 * 1_000_033)))
def test_divisors_of_huge_numbers_hold_their_large_primes_together(small: int, large: int) -> None:
    found = divisors(small * large)
    assert MOST_PRIME < 1_000_003
    assert found == sorted([*divisors(small), *(large * d for d in divisors(small))])


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_wider_in_its_own_proportions(name: str) -> None:
    model = MODELS[name]
    unit = width_unit(model)
    assert model.hidden_size % unit == 0
    assert with_width(model, model.hidden_size) == model
    wide = with_width(model, 2 * model.hidden_size)
    assert with_width(wide, model.hidden_size) == model
    assert wide.head_width == model.head_width
    assert count_parameters(wide).total > 1.5 * count_parameters(model).total
    recipe = Recipe(sequence_length=1024)
    asked = Question(model=wide, recipe=recipe, layout=Layout(), cluster=Cluster(gpu=H100.slug, gpus=1), gpu=H100)
    assert estimate(asked).memory.device_peak_bytes.value > 0


def test_bounds_are_those_of_the_fields() -> None:
    assert field_bounds(Model, "num_hidden_layers") == (1, 2048)
    assert field_bounds(Layout, "data") == (1, 1 << 20)
    with pytest.raises(TypeError, match="no bounds"):
        field_bounds(Recipe, "precision")


@pytest.mark.parametrize("name", UNKNOWNS)
@pytest.mark.parametrize("multiple", [1, 2, 96])
def test_values_ascend_inside_their_bounds(name: str, multiple: int) -> None:
    unknown = UNKNOWNS[name]
    least, most = unknown.bounds
    for batch in (None, 96):
        asked = question(DENSE, Recipe(sequence_length=1024, global_batch=batch), gpus=8)
        values = unknown.values(asked, multiple)
        first = list(values[:50])
        assert first == sorted(set(first))
        assert all(value % multiple == 0 and least <= value <= most for value in (*first, *values[-1:]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["model.num_hidden_layers", "model.hidden_size", "recipe.sequence_length"])
def test_a_value_changes_its_own_field_to_it(family: str, name: str) -> None:
    asked = question(FAMILIES[family], Recipe(sequence_length=1024))
    unknown = UNKNOWNS[name]
    part, _, field = name.partition(".")
    for value in unknown.values(asked, 1)[:3]:
        changed = unknown.put(asked, value)
        assert getattr(getattr(changed, part), field) == value
        assert replace(changed, **{part: getattr(asked, part)}) == asked


def test_gpus_beyond_one_node_come_in_whole_nodes_and_whole_replicas() -> None:
    asked = question(DENSE, Recipe(sequence_length=1024), Layout(tensor=2, pipeline=3), gpus=6)
    values = UNKNOWNS["cluster.gpus"].values(asked, 1)
    assert list(values[:4]) == [6, 24, 48, 72]
    shared = question(DENSE, Recipe(sequence_length=1024, global_batch=48), Layout(tensor=2), gpus=6)
    assert list(UNKNOWNS["cluster.gpus"].values(shared, 1)) == [2, 4, 6, 8, 16, 24, 32, 48, 96]
    for gpus in values[:4]:
        try:
            estimate(UNKNOWNS["cluster.gpus"].put(asked, gpus))
        except Refused as refused:
            codes = {problem.code for problem in refused.problems}
            assert "replica_divides_cluster" not in codes
