"""Defaults that are filled by what a question needs."""

from dataclasses import replace
from typing import Any

import pytest

from service.errors import Refused
from service.estimator import Layout, Model, Recipe
from service.estimator.question import Method, Software, StackName, Versions
from service.estimator.resolve import resolve
from tests.ask import ask, bytes_of, question
from tests.cases import each_case
from tests.estimator.small_models import DENSE

CONVOLUTIONS = replace(DENSE, layer_types=("short_convolution", "full_attention"), conv_kernel=4)


@each_case(
    ("model", "options", "layout", "stack"),
    [
        (DENSE, {}, {}, "megatron-core"),
        (DENSE, {}, {"tensor": 2, "pipeline": 2}, "megatron-core"),
        (DENSE, {"method": Method(name="qlora")}, {"tensor": 2}, "transformers"),
        (DENSE, {"method": Method(name="qlora")}, {"pipeline": 2}, "deepspeed"),
        (DENSE, {"method": Method(name="qlora")}, {"context": 2}, "transformers"),
        (DENSE, {"method": Method(name="qlora")}, {"context": 2, "context_method": "ulysses"}, "deepspeed"),
        (DENSE, {"method": Method(name="qlora")}, {"zero_stage": 2}, "deepspeed"),
        (DENSE, {"optimizer": "adafactor"}, {"zero_stage": 3}, "transformers"),
        (DENSE, {"optimizer": "adafactor"}, {"zero_stage": 3, "pipeline": 2}, "torchtitan"),
        (CONVOLUTIONS, {}, {}, "transformers"),
        (CONVOLUTIONS, {"precision": "fp8-tensorwise"}, {}, "fsdp1"),
    ],
)
def test_an_absent_stack_is_the_first_that_runs_the_question(
    model: Model, options: dict[str, Any], layout: dict[str, Any], stack: StackName
) -> None:
    recipe = Recipe(**{**{"sequence_length": 1024, "global_batch": 8}, **options})
    answer = ask(model, recipe, Layout(**layout), gpus=4)
    assert answer.resolved.recipe.stack == stack
    explained = [text for text in answer.assumptions if text.startswith(f"recipe.stack is {stack}: ")]
    assert len(explained) == (stack != "megatron-core")


def test_a_question_that_no_stack_runs_is_refused_as_by_the_first() -> None:
    with pytest.raises(Refused) as refused:
        resolve(question(DENSE, Recipe(sequence_length=1024), Layout(stage_layers=(1, 1, 1)), gpus=4))
    assert [problem.code for problem in refused.value.problems] == ["stage_layers_cover_the_model"]


@each_case(
    ("versions", "copies"),
    [
        (Versions(), False),
        (Versions(transformers="4.54", torch="2.5"), False),
        (Versions(transformers="4.53"), True),
        (Versions(torch="2.4"), True),
    ],
)
def test_keys_and_values_are_copied_before_the_releases_that_group_heads(versions: Versions, *, copies: bool) -> None:
    recipe = Recipe(sequence_length=8192, stack=Software(name="transformers", versions=versions))
    newest = replace(recipe, stack="transformers")
    kept, least = (bytes_of(ask(DENSE, one), "activations") for one in (recipe, newest))
    head = DENSE.hidden_size // DENSE.num_attention_heads
    copied = 2 * 8192 * (DENSE.num_attention_heads - DENSE.key_value_heads) * head * 2 * DENSE.num_hidden_layers
    assert kept - least == (copied if copies else 0)
