"""Answers change only together with the version of the formulas."""

import tomllib
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from service.estimator import FORMULAS_VERSION, Layout, Model, Question, Recipe, estimate
from service.estimator.model.build import recurrences_of
from service.estimator.question import Method, Software, Versions
from service.estimator.software.stacks import STACKS
from tests.ask import question
from tests.estimator.small_models import FAMILIES

RECORDED = tomllib.loads((Path(__file__).parent / "versions.toml").read_text(encoding="utf-8"))

ENGINE = Software(name="megatron-core", versions=Versions(transformer_engine="2.11", megatron_core="0.14", torch="2.9"))
LAYOUTS = (
    (Recipe(sequence_length=4096, global_batch=64, training_tokens=1e12), Layout(), 8),
    (
        Recipe(sequence_length=4096, global_batch=64, recompute="full", attention="eager"),
        Layout(tensor=2, pipeline=2),
        16,
    ),
    (
        Recipe(sequence_length=4096, global_batch=64),
        Layout(tensor=2, pipeline=2, rank_order="tp-cp-ep-pp-dp"),
        16,
    ),
    (Recipe(sequence_length=8192, global_batch=64, stack="torchtitan", optimizer="adamw-8bit"), Layout(context=2), 16),
    (
        Recipe(sequence_length=1024, global_batch=64, precision="fp8-blockwise", optimizer="muon"),
        Layout(zero_stage=1),
        8,
    ),
    (
        Recipe(sequence_length=4096, global_batch=64, stack=ENGINE, ema=True, moment_dtype="bf16"),
        Layout(pipeline=2, virtual_pipeline=2, virtual_group=4, tensor=2),
        16,
    ),
    (
        Recipe(sequence_length=4096, micro_batch=2, global_batch=64, stack="deepspeed", dropout_fraction=0.1),
        Layout(zero_stage=3, offload="optimizer-and-activations"),
        8,
    ),
    (
        Recipe(
            sequence_length=4096, global_batch=64, stack="transformers", method=Method(name="qlora", whole=("norms",))
        ),
        Layout(zero_stage=3),
        8,
    ),
    (Recipe(sequence_length=4096, global_batch=64, stack="nanotron"), Layout(pipeline=2, tensor=2), 16),
    (Recipe(sequence_length=4096, global_batch=64, stack="fsdp1", recompute="selective"), Layout(), 16),
)


def rounded(answer: Any) -> Any:
    """The answer with its numbers at nine digits, which every machine agrees on."""
    if isinstance(answer, dict):
        return {name: rounded(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [rounded(value) for value in answer]
    return f"{answer:.9g}" if isinstance(answer, float) else answer


def has_layers(recipe: Recipe, model: Model) -> bool:
    """Whether the recipe's stack has code for every layer of a model."""
    stack = recipe.stack.name if isinstance(recipe.stack, Software) else recipe.stack
    return set(recurrences_of(model)) <= set(STACKS[stack or "megatron-core"].recurrences)


def digest() -> str:
    """What the formulas say today to every family of models, under layouts that use every axis."""
    asked: list[Question] = [
        question(model, recipe, layout, gpus=gpus)
        for model in FAMILIES.values()
        for recipe, layout, gpus in LAYOUTS
        if has_layers(recipe, model) and not (recurrences_of(model) and layout.context > 1)
        if recipe.method == "full" or model.q_lora_rank is None
    ]
    return sha256(repr([rounded(asdict(estimate(one))) for one in asked]).encode()).hexdigest()[:16]


def test_answers_are_those_of_the_version() -> None:
    said = digest()
    assert RECORDED.get(FORMULAS_VERSION) == said, (
        f"answers changed: give service.estimator.FORMULAS_VERSION a new name and record {said} for it in versions.toml"
    )
