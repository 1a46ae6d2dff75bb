"""Questions whose layout is left to the service, with what was searched among their assumptions."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, Any

from service.errors import Problem, Refused
from service.estimator.question import Question
from service.estimator.run.totals import PLAN_RESIDUALS
from service.validation.questions import ParsedQuestion

if TYPE_CHECKING:
    from service.planner.planned import PlannedQuestion

ONE_BATCH = Problem(
    field="recipe.stages",
    code="plan_has_one_batch",
    message="layouts are ranked at one batch and length, and stages change both",
    fix="leave stages out, and ask for an estimate of the chosen plan with them",
)


def with_batch(question: Question, micro_batch: int = 1) -> tuple[Question, tuple[str, ...]]:
    """A question with a batch, which is one micro-batch for each GPU where none is given; and that assumption."""
    recipe, gpus = question.recipe, question.cluster.gpus
    if recipe.global_batch is not None or recipe.global_batch_tokens is not None:
        return question, ()
    batch = micro_batch * gpus
    assumed = f"recipe.global_batch is assumed to be {batch:,}: {micro_batch} for each of {gpus:,} GPUs"
    return replace(question, recipe=replace(recipe, global_batch=batch)), (assumed,)


def planned(parsed: ParsedQuestion, allowed: Mapping[str, tuple[Any, ...]]) -> ParsedQuestion:
    """A question with the layout, micro-batch and recompute that are fastest, of those that fit and are allowed."""
    from service.planner.planned import with_planned_layout

    if parsed.question.recipe.stages:
        raise Refused(ONE_BATCH)
    question, assumed = with_batch(parsed.question, max(allowed.get("micro_batch", (1,))))
    found = with_planned_layout(question, allowed)
    return replace(
        parsed, question=found.question, assumptions=(*parsed.assumptions, *assumed, *_searched(found, allowed))
    )


def _searched(found: "PlannedQuestion", allowed: Mapping[str, tuple[Any, ...]]) -> Iterator[str]:
    """What was searched, and what published runs say of plans."""
    best = f"the fastest of {found.fitting:,} that fit" if found.fitting else "the smallest, because none fits"
    given = {name: values[0] if len(values) == 1 else f"one of {len(values)}" for name, values in allowed.items()}
    kept = f"; as given: {', '.join(f'{name} {value}' for name, value in given.items())}" if given else ""
    yield f"layout, micro_batch and recompute are planned: {best}, of {found.scored:,} legal ones{kept}"
    low, high = (exp(end) for end in PLAN_RESIDUALS)
    yield f"80 % of published runs took {low:.2f} to {high:.2f} times what their best plan takes"
