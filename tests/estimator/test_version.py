"""Answers change only together with the version of the formulas."""

import tomllib
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from service.estimator import FORMULAS_VERSION, Layout, Question, Recipe, estimate
from service.estimator.build import recurrences_of
from tests.ask import question
from tests.estimator.small_models import FAMILIES

RECORDED = tomllib.loads((Path(__file__).parent / "versions.toml").read_text(encoding="utf-8"))

LAYOUTS = (
    (Recipe(sequence_length=4096, global_batch=64, training_tokens=1e12), Layout(), 8),
    (
        Recipe(sequence_length=4096, global_batch=64, recompute="full", attention="eager"),
        Layout(tensor=2, pipeline=2),
        16,
    ),
    (Recipe(sequence_length=8192, global_batch=64, stack="torchtitan", optimizer="adamw-8bit"), Layout(context=2), 16),
    (
        Recipe(sequence_length=1024, global_batch=64, precision="fp8-blockwise", optimizer="muon"),
        Layout(zero_stage=2),
        8,
    ),
)


def rounded(answer: Any) -> Any:
    """The answer with its numbers at nine digits, which every machine agrees on."""
    if isinstance(answer, dict):
        return {name: rounded(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [rounded(value) for value in answer]
    return f"{answer:.9g}" if isinstance(answer, float) else answer


def digest() -> str:
    """What the formulas say today to every family of models, under layouts that use every axis."""
    asked: list[Question] = [
        question(model, recipe, layout, gpus=gpus)
        for model in FAMILIES.values()
        for recipe, layout, gpus in LAYOUTS
        if not (recurrences_of(model) and (layout.context > 1 or recipe.stack == "torchtitan"))
    ]
    return sha256(repr([rounded(asdict(estimate(one))) for one in asked]).encode()).hexdigest()[:16]


def test_answers_are_those_of_the_version() -> None:
    said = digest()
    assert RECORDED.get(FORMULAS_VERSION) == said, (
        f"answers changed: give service.estimator.FORMULAS_VERSION a new name and record {said} for it in versions.toml"
    )
