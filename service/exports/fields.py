"""Which fields of a question does every file have to account for, and what are their values once all is filled?

Recipe and Layout field by field, the training software inside the recipe too. The model is one field for a tool whose
file holds none, and a field each for a tool that spells it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from service.estimator.model.training import method_of
from service.estimator.question import Layout, Model, Question, Recipe, Software
from service.estimator.software.stacks import software_of
from service.estimator.workload import recompute_of

MODEL = "model"
"""The model as a whole."""

STACK = tuple(f"recipe.stack.{field.name}" for field in fields(Software))
RECIPE = (*(f"recipe.{field.name}" for field in fields(Recipe) if field.name != "stack"), *STACK)
LAYOUT = tuple(f"layout.{field.name}" for field in fields(Layout))
MODEL_FIELDS = tuple(f"model.{field.name}" for field in fields(Model))


def values_of(question: Question) -> Mapping[str, Any]:
    """The value of every field, as rules take it.

    Args:
        question: the question, every default filled

    Returns:
        values by dotted path; recompute, method and stack in their full form
    """
    recipe, software = question.recipe, software_of(question.recipe)
    return {
        MODEL: question.model,
        **{f"model.{field.name}": getattr(question.model, field.name) for field in fields(Model)},
        **{f"recipe.{field.name}": getattr(recipe, field.name) for field in fields(Recipe)},
        **{f"recipe.stack.{field.name}": getattr(software, field.name) for field in fields(Software)},
        **{f"layout.{field.name}": getattr(question.layout, field.name) for field in fields(Layout)},
        "recipe.recompute": recompute_of(recipe),
        "recipe.method": method_of(recipe),
    }
