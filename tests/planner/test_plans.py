"""A search finds what a loop of single estimates finds, and counts what it leaves out."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from service.errors import Refused
from service.estimator import Cluster, Layout, Model, Question, Recipe, estimate
from service.estimator.answer import Estimate
from service.estimator.resolve import resolve
from service.estimator.samples import H100, LLAMA_3_8B
from service.planner.plans import SearchResult, question_of, search
from service.planner.space import Constraints, fits, most_reserved_bytes
from tests.amounts import WHOLE, amount
from tests.estimator.small_models import HYBRID

SPARSE = Model(
    vocab_size=32000,
    hidden_size=2048,
    num_hidden_layers=9,
    num_attention_heads=16,
    num_key_value_heads=8,
    intermediate_size=8192,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=1024,
    first_k_dense_replace=1,
)
SMALL_H100 = replace(H100, usable_bytes=H100.usable_bytes / 4)
"""A GPU on which some layouts of small models fit and some do not."""


def asked(model: Model, gpus: int, **recipe: Any) -> Question:
    return Question(
        model=model,
        recipe=Recipe(**{"sequence_length": 4096, "global_batch": 16, **recipe}),
        layout=Layout(),
        cluster=Cluster(gpu=H100.slug, gpus=gpus),
        gpu=SMALL_H100,
    )


def found_in(question: Question, allowed: Mapping[str, tuple[Any, ...]], top: int = 10**6) -> SearchResult:
    *_, found = search(question, Constraints(allowed), top)
    return found


def singles(question: Question, allowed: Mapping[str, tuple[Any, ...]]) -> Iterator[Estimate]:
    """Every combination of some values that is not refused, asked one by one."""
    for values in product(*allowed.values()):
        chosen = dict(zip(allowed, values, strict=True))
        batch = {name: chosen.pop(name) for name in ("micro_batch", "recompute") if name in chosen}
        one = replace(question, recipe=replace(question.recipe, **batch), layout=Layout(**chosen))
        try:
            yield estimate(one)
        except Refused:
            continue


SPACES: dict[str, tuple[Question, dict[str, tuple[Any, ...]]]] = {
    "dense": (
        asked(LLAMA_3_8B, 16),
        {
            "tensor": (1, 2, 4) if WHOLE else (1, 2), "context": (1, 2), "pipeline": (1, 2, 4),
            "virtual_pipeline": (1,), "expert": (1,),
            "zero_stage": (0, 1, 3) if WHOLE else (1, 3), "sequence_parallel": (True, False),
            "micro_batch": (1, 2, 3) if WHOLE else (1, 2), "recompute": ("none", "selective", "full"),
            "schedule": ("1f1b", "gpipe", "zero-bubble", "dualpipe") if WHOLE else ("1f1b", "dualpipe"),
            "reshard_after_forward": (True, False),
        },
    ),
    "interleaved": (
        asked(LLAMA_3_8B, 16),
        {
            "tensor": (1, 2), "pipeline": (2, 4), "virtual_pipeline": (2, 3, 4, 8), "zero_stage": (1, 2),
            "sequence_parallel": (False,), "micro_batch": (1, 2), "recompute": ("none", "full"),
            "schedule": ("interleaved-1f1b",), "context": (1,),
        },
    ),
    "experts": (
        asked(SPARSE, 24, global_batch=48),
        {
            "tensor": (1, 2), "context": (1, 2), "pipeline": (1, 3), "virtual_pipeline": (1, 3), "expert": (1, 2, 8),
            "expert_tensor": (1, 2), "zero_stage": (1, 2), "sequence_parallel": (True, False), "micro_batch": (1, 2),
            "recompute": ("none",), "schedule": ("1f1b", "interleaved-1f1b"),
        },
    ),
    "recurrent": (
        asked(replace(HYBRID, num_hidden_layers=16), 8),
        {
            "tensor": (1, 2), "context": (1, 2), "pipeline": (1, 2, 4), "virtual_pipeline": (1, 2), "zero_stage": (1,),
            "sequence_parallel": (True, False), "micro_batch": (1, 2), "recompute": ("none", "full"), "expert": (1,),
            "expert_tensor": (None,), "schedule": ("1f1b", "interleaved-1f1b"),
        },
    ),
    "torchtitan": (
        replace(asked(LLAMA_3_8B, 8, stack="torchtitan"), gpu=H100),
        {
            "tensor": (1, 2), "context": (1, 2), "pipeline": (1, 2), "virtual_pipeline": (1,), "zero_stage": (0, 3),
            "sequence_parallel": (True, False), "micro_batch": (1, 2), "recompute": ("none", "selective", "full"),
            "schedule": ("1f1b", "gpipe"), "reshard_after_forward": (True, False),
        },
    ),
}  # fmt: skip
ALONE = {
    "shard_group": (None,),
    "embedding_in_split": (False,),
    "loss_in_split": (False,),
    "rank_order": ("tp-cp-ep-dp-pp",),
}
"""What a single layout takes where nothing is said of it."""


BOTH_ORDERS = {"rank_order": ("tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp")}
ORDERED = ("dense", "interleaved", "experts")
"""Spaces that are searched in either order of ranks too."""


@cache
def singles_of(name: str) -> tuple[Estimate, ...]:
    """Every combination of a space, under either order of ranks where it is searched in both, asked one by one."""
    question, allowed = SPACES[name]
    return tuple(singles(question, allowed | BOTH_ORDERS if name in ORDERED else allowed))


@pytest.mark.parametrize("name", SPACES)
def test_a_search_is_a_loop_of_estimates(name: str) -> None:
    question, allowed = SPACES[name]
    found = found_in(question, allowed | ALONE)
    answers = {
        shape(answer): answer for answer in singles_of(name) if answer.resolved.layout.rank_order in ALONE["rank_order"]
    }
    fitting = sorted(answer.step.step_seconds.value for answer in answers.values() if answer.verdict == "fits")
    assert len(fitting) > 5
    assert [one.step_seconds for one in found.best] == pytest.approx(fitting, rel=1e-9)
    assert (found.scored, found.fitting) == (len(answers), len(fitting))


def is_tried(answer: Estimate) -> bool:
    """Whether a search tries a layout: in the first order, or where the other lets a node hold a replica's stages."""
    layout = answer.resolved.layout
    if layout.rank_order == "tp-cp-ep-dp-pp":
        return True
    return 1 < layout.pipeline <= 8 // (layout.tensor * layout.context) and answer.verdict == "fits"


@pytest.mark.parametrize("name", ORDERED)
def test_another_order_of_ranks_is_tried_where_a_node_then_holds_all_stages(name: str) -> None:
    question, allowed = SPACES[name]
    found = found_in(question, allowed | ALONE | BOTH_ORDERS)
    answers = {shape(answer): answer for answer in singles_of(name) if is_tried(answer)}
    fitting = sorted(answer.step.step_seconds.value for answer in answers.values() if answer.verdict == "fits")
    assert [one.step_seconds for one in found.best] == pytest.approx(fitting, rel=1e-9)
    assert (found.scored, found.fitting) == (len(answers), len(fitting))
    assert found.generated == found.scored + found.refused.total()
    assert {one.layout.rank_order for one in found.best} == set(BOTH_ORDERS["rank_order"])


@pytest.mark.parametrize("name", ORDERED)
def test_a_pinned_order_of_ranks_holds_everywhere(name: str) -> None:
    question, allowed = SPACES[name]
    pinned = {"rank_order": ("tp-cp-ep-pp-dp",)}
    found = found_in(question, allowed | ALONE | pinned)
    answers = {
        shape(answer): answer
        for answer in singles_of(name)
        if answer.resolved.layout.rank_order in pinned["rank_order"]
    }
    assert (found.scored, found.fitting) == (len(answers), sum(one.verdict == "fits" for one in answers.values()))
    assert {one.layout.rank_order for one in found.best} == set(pinned["rank_order"])


def test_an_order_of_ranks_that_the_stack_lacks_is_refused() -> None:
    question = SPACES["torchtitan"][0]
    with pytest.raises(Refused) as refused:
        found_in(question, {"rank_order": ("tp-cp-ep-pp-dp",)})
    assert {problem.code for problem in refused.value.problems} == {"stack_numbers_ranks_so"}


def test_in_one_node_there_is_one_order_of_ranks() -> None:
    found = found_in(replace(asked(LLAMA_3_8B, 8), gpu=H100), {"micro_batch": (1,)})
    assert {one.layout.rank_order for one in found.best} == {"tp-cp-ep-dp-pp"}


def shape(answer: Estimate) -> tuple[object, ...]:
    """What tells one layout from another: a pipeline of one stage runs the same schedule by any name."""
    layout, recipe = answer.resolved.layout, answer.resolved.recipe
    named = replace(layout, schedule="1f1b") if layout.pipeline == 1 else layout
    return (named, recipe.micro_batch, str(recipe.recompute))


WIDE = {
    "dense": asked(LLAMA_3_8B, amount(32, 64), global_batch=amount(48, 96)),
    "sparse": asked(SPARSE, 24, global_batch=amount(24, 48)),
    "recurrent": asked(replace(HYBRID, num_hidden_layers=16), amount(8, 16)),
    "other stack": asked(LLAMA_3_8B, 16, stack="deepspeed"),
    "by cost": asked(LLAMA_3_8B, 16, stack="nanotron"),
    "plain": asked(LLAMA_3_8B, 8, stack="transformers", method="lora"),
}
SAMPLE = amount(20, 40)


@cache
def found_of(name: str) -> SearchResult:
    """What a search of everything finds."""
    return found_in(WIDE[name], {})


@pytest.mark.parametrize("name", WIDE)
def test_every_candidate_is_what_an_estimate_says(name: str) -> None:
    question, found = WIDE[name], found_of(name)
    assert found.best == sorted(found.best)
    for candidate in Random(7).sample(found.best, min(SAMPLE, len(found.best))):  # noqa: S311 - the same ones every time
        answer = estimate(question_of(question, candidate))
        assert answer.verdict == "fits"
        assert answer.step.step_seconds.value == pytest.approx(candidate.step_seconds, rel=1e-9)
        assert answer.memory.reserved_peak_bytes.value == pytest.approx(candidate.reserved_bytes, rel=1e-9)


def test_refused_and_scored_are_all_that_is_generated() -> None:
    found = found_of("dense")
    assert found.generated == found.scored + found.refused.total()
    assert {"replica_divides_cluster", "accumulation_is_whole"} <= set(found.refused)


def test_a_front_holds_whatever_nothing_beats() -> None:
    found = found_of("dense")
    beaten = [
        any(
            one.step_seconds <= each.step_seconds
            and one.reserved_bytes <= each.reserved_bytes
            and (one.step_seconds, one.reserved_bytes) != (each.step_seconds, each.reserved_bytes)
            for one in found.front
        )
        for each in found.best
    ]
    points = {(one.step_seconds, one.reserved_bytes) for one in found.front}
    assert len(points) == len(found.front)
    unbeaten = {
        (e.step_seconds, e.reserved_bytes) for e, is_beaten in zip(found.best, beaten, strict=True) if not is_beaten
    }
    assert points == unbeaten


def test_the_best_are_the_first_of_all() -> None:
    every, few = found_of("dense"), found_in(WIDE["dense"], {}, top=7)
    assert few.best == every.best[:7]
    assert few.front == every.front


def test_a_search_finds_the_same_twice() -> None:
    one, other = found_of("sparse"), found_in(WIDE["sparse"], {})
    assert [(c, c.layout, c.micro_batch) for c in one.best] == [(c, c.layout, c.micro_batch) for c in other.best]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_what_fits_is_all_below_one_number(share: float) -> None:
    workload = resolve(replace(WIDE["dense"], layout=Layout(tensor=8))).workload
    most = most_reserved_bytes(workload, share)
    assert all(fits(workload, most * x, share) for x in (0.01, 0.3, 0.9, 1.0))
    assert not any(fits(workload, most * x, share) for x in (1 + 1e-9, 1.01, 1.5))


def test_nothing_fits_but_the_smallest_is_known() -> None:
    tiny = replace(SMALL_H100, usable_bytes=2**30)
    found = found_in(replace(WIDE["dense"], gpu=tiny), {}, top=3)
    assert found.scored > 0
    assert (found.fitting, found.best, found.front) == (0, [], [])
    assert found.smallest is not None
    answer = estimate(question_of(replace(WIDE["dense"], gpu=tiny), found.smallest))
    assert answer.memory.reserved_peak_bytes.value == pytest.approx(found.smallest.reserved_bytes)


def test_a_job_that_no_layout_saves_is_refused() -> None:
    question = replace(WIDE["dense"], recipe=replace(WIDE["dense"].recipe, precision="nvfp4"))
    with pytest.raises(Refused) as refused:
        found_in(question, {})
    assert {problem.code for problem in refused.value.problems} == {"gpu_has_the_format"}


def test_pins_hold() -> None:
    pins = {"tensor": (2,), "zero_stage": (1, 3), "data": (8, 16), "micro_batch": (2,), "shard_group": (4,)}
    found = found_in(asked(LLAMA_3_8B, 64, global_batch=96), pins)
    assert found.best
    seen = Counter((c.layout.tensor, c.layout.shard_group, c.micro_batch) for c in found.best)
    assert set(seen) == {(2, 4, 2)}
    assert {c.layout.zero_stage for c in found.best} <= {1, 3}
    assert {c.layout.data for c in found.best} <= {8, 16}
