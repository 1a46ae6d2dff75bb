"""What is said of a change is what the changed question is answered, and every change that is named may be made."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from service.estimator import Question, estimate
from service.estimator.advice import MOST_CHANGES, VERDICTS, ranked_changes, with_advice
from service.estimator.answer import Change, Memory
from service.estimator.memory.device import verdict_of
from service.estimator.question import Cluster, Layout, Recipe, Software
from service.estimator.samples import H100, LLAMA_3_8B
from tests.amounts import amount
from tests.estimator.legal_questions import questions
from tests.estimator.small_models import FAMILIES

ROOM_BYTES = 2.0**30


def asking(model: str = "", gpus: int = 8, room: float = H100.usable_bytes, **fields: Any) -> Question:
    """A question of a GPU with so much room."""
    gpu = replace(H100, usable_bytes=room)
    return Question(
        model=FAMILIES[model] if model else LLAMA_3_8B,
        recipe=fields.get("recipe", Recipe(sequence_length=8192, global_batch=64)),
        layout=fields.get("layout", Layout()),
        cluster=Cluster(gpu=gpu.slug, gpus=gpus),
        gpu=gpu,
    )


def memory_of(asked: Question) -> Memory:
    """The memory part of an answer with what to change."""
    return with_advice(estimate(asked).memory, asked)


def made(asked: Question, change: Change) -> Question:
    """The question with a change, and nothing else changed."""
    for setting in (f"{change.field}={change.value}", *change.also):
        name, _, text = setting.partition("=")
        value: Any = int(text) if text.isdecimal() else text
        part, _, field = name.partition(".")
        if field == "stack.cross_entropy":
            given = asked.recipe.stack
            software = given if isinstance(given, Software) else Software(name=given or "megatron-core")
            field, value = "stack", replace(software, cross_entropy=value)
        asked = replace(asked, **{part: replace(getattr(asked, part), **{field: value})})
    return asked


@settings(max_examples=amount(30, 60))
@given(questions())
def test_a_change_saves_what_is_said_and_is_told_once_those_that_fit_first(asked: Question) -> None:
    small = replace(asked, gpu=replace(asked.gpu, usable_bytes=ROOM_BYTES))
    before = estimate(small).memory
    found = ranked_changes(small, before.biggest_line)
    for change in found:
        after = estimate(made(small, change)).memory
        assert change.device_peak_bytes == pytest.approx(after.device_peak_bytes.value, rel=1e-12), change.field
        saved = before.device_peak_bytes.value - after.device_peak_bytes.value
        assert change.saves_bytes == pytest.approx(saved, rel=1e-9)
        assert change.verdict == verdict_of(after.oom_probability_fraction)
    assert len({change.field for change in found}) == len(found) <= MOST_CHANGES
    places = [VERDICTS.index(change.verdict) for change in found]
    assert places == sorted(places)


def test_the_first_degree_that_is_enough_is_told() -> None:
    asked = asking(gpus=64, recipe=Recipe(sequence_length=8192, global_batch=64, stack="torchtitan"), room=30e9)
    (split,) = [change for change in memory_of(asked).changes if change.field == "layout.tensor"]
    degree = int(split.value)
    assert split.verdict == "fits"
    assert degree > 2
    lower = replace(asked, layout=Layout(tensor=degree // 2))
    assert estimate(lower).verdict != "fits"


def test_experts_are_spread() -> None:
    named = [name for name, model in FAMILIES.items() if (model.num_experts or 0) >= 8]
    small = memory_of(asking(named[0], room=4e9))
    assert "layout.expert" in {change.field for change in small.changes}


def test_replicas_that_are_named_shrink_with_a_split() -> None:
    asked = asking(layout=Layout(data=8), room=30e9)
    (split,) = [change for change in memory_of(asked).changes if change.field == "layout.tensor"]
    assert split.also == (f"layout.data={8 // int(split.value)}",)


def test_what_is_left_is_more_gpus_or_less_training() -> None:
    found = memory_of(asking(gpus=1, room=6e9)).changes
    assert {"cluster.gpus", "recipe.method"} & {change.field for change in found}


@pytest.mark.parametrize(
    ("recipe", "may_adapt"),
    [
        ({"stack": "transformers"}, True),
        ({"training_tokens": 1e6}, True),
        ({"stack": "transformers", "training_tokens": 1e12}, False),
        ({"stack": "megatron-core"}, False),
        ({"stack": "torchtitan", "training_tokens": 1e6}, False),
    ],
)
def test_adapters_are_named_for_fine_tuning_alone(recipe: dict[str, Any], may_adapt: bool) -> None:
    asked = asking(gpus=1, recipe=Recipe(sequence_length=1024, **recipe), room=4e9)
    assert ("recipe.method" in {change.field for change in memory_of(asked).changes}) is may_adapt


def test_offload_of_both_is_found_beyond_offload_of_one() -> None:
    asked = asking(layout=Layout(offload="activations"), gpus=1, room=60e9)
    assert ("layout.offload", "optimizer-and-activations") in {
        (change.field, change.value) for change in memory_of(asked).changes
    }


def test_a_job_that_fits_is_left_alone() -> None:
    asked = asking(room=1e12)
    assert memory_of(asked) == estimate(asked).memory
