"""Which configurations does a run go through? Stages of a recipe filled, refused by place, and asked one by one."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from service.errors import Problem, Refused
from service.estimator.batch import resolve_batch
from service.estimator.filled import filled
from service.estimator.question import Layout, Question, Recipe
from service.estimator.ramp import MOST_BATCHES, batches_of, schedule_of
from service.estimator.run_stage import RunStage

STAGES = "recipe.stages"
"""Place of the stages in a question."""


def filled_stages(recipe: Recipe, layout: Layout) -> Recipe:
    """The recipe with every field of its stages filled.

    Args:
        recipe: the recipe, its own batch filled
        layout: the layout, filled

    Returns:
        the recipe; every stage has a batch that micro-batches and replicas share evenly, and at least one step

    Raises:
        Refused: a stage ends in the wrong order, or its batch cannot be shared or does not rise
    """
    if not recipe.stages:
        return recipe
    problems = _order_problems(recipe)
    stages = []
    for index, stage in enumerate(recipe.stages):
        found, wrong = _filled(stage, recipe, layout)
        stages.append(found)
        problems += _at(index, wrong)
    if problems:
        raise Refused(*problems)
    whole = replace(recipe, stages=tuple(stages))
    _refuse_stages_without_steps(whole)
    return whole


def questions_of(question: Question, index: int) -> tuple[Question, ...]:
    """What one stage of a run asks for: its first configuration, and its last one where its batch rises.

    Args:
        question: the question, its stages filled
        index: place of the stage

    Returns:
        questions without stages, of other batches and the same length
    """
    recipe, stage = question.recipe, question.recipe.stages[index]
    batches, length = batches_of(stage), filled(stage.sequence_length)
    return tuple(
        replace(
            question,
            recipe=replace(
                recipe, stages=(), sequence_length=length, global_batch=batch, global_batch_tokens=batch * length
            ),
        )
        for batch in dict.fromkeys((batches[0], batches[-1]))
    )


def placed(problems: Iterable[Problem], index: int) -> list[Problem]:
    """Problems of a stage's configuration, at the field of the stage that brings them.

    Args:
        problems: what its configuration breaks; the recipe's own breaks nothing
        index: place of the stage

    Returns:
        the same, blamed on the stage
    """
    return [
        replace(one, field=f"{STAGES}.{index}.{'sequence_length' if one.field in _OF_LENGTH else 'global_batch'}")
        for one in problems
    ]


_OF_LENGTH = ("recipe.sequence_length", "layout.context", "layout.sequence_parallel", "model")
"""Fields that rules of the sequence length blame."""


def _order_problems(recipe: Recipe) -> list[Problem]:
    if recipe.training_tokens is None:
        message = "stages end after so many tokens of the run, and the tokens of the run are not told"
        return [
            Problem(
                field="recipe.training_tokens",
                code="stages_need_training_tokens",
                message=message,
                fix="give training_tokens",
            )
        ]
    problems, before = [], 0.0
    for index, stage in enumerate(recipe.stages):
        end, field = stage.until_tokens, f"{STAGES}.{index}.until_tokens"
        if end <= before:
            message = f"the stage ends at {end:.6g} tokens of the run, and the one before it at {before:.6g}"
            fix = "count until_tokens from the beginning of the run, and order stages by it"
            problems.append(Problem(field=field, code="stages_ascend", message=message, fix=fix))
        if end >= recipe.training_tokens:
            message = f"the stage ends at {end:.6g} tokens, and the run has {recipe.training_tokens:.6g}"
            fix = "set until_tokens below training_tokens; what follows has the recipe's own batch and length"
            problems.append(Problem(field=field, code="stages_end_before_the_run", message=message, fix=fix))
        before = end
    return problems


@dataclass(frozen=True, slots=True)
class _Sharing:
    """How the batch of one stage is shared."""

    recipe: Recipe
    replicas: int
    chunks: int
    """Micro-batches of which a replica runs a whole number, so that the schedule fits."""

    @property
    def group(self) -> int:
        """Sequences that the layout shares evenly [1]."""
        return self.recipe.micro_batch * self.replicas * self.chunks

    def uneven(self, batch: int, field: str) -> list[Problem]:
        """What is wrong with a batch, where it cannot be shared."""
        try:
            resolve_batch(replace(self.recipe, global_batch=batch, global_batch_tokens=None), self.replicas)
        except Refused as refused:
            return [replace(one, field=field) for one in refused.problems]
        return []


def _filled(stage: RunStage, recipe: Recipe, layout: Layout) -> tuple[RunStage, list[Problem]]:
    sharing = _Sharing(recipe, filled(layout.data), micro_batch_multiple(layout))
    first, final = stage.global_batch or filled(recipe.global_batch), stage.final_global_batch
    problems = sharing.uneven(first, "global_batch")
    increment = stage.batch_increment
    if final is None:
        problems += _increment_without_end(stage)
    else:
        problems += sharing.uneven(final, "final_global_batch") or _falling(first, final)
        increment = increment or _least_increment(sharing.group, final - first)
        problems += _uneven_increment(increment, sharing.group) or _too_many(first, final, increment, sharing.group)
    length = stage.sequence_length or recipe.sequence_length
    return replace(stage, global_batch=first, sequence_length=length, batch_increment=increment), problems


def micro_batch_multiple(layout: Layout) -> int:
    """Micro-batches of which one step of a schedule takes a multiple.

    Formula:
        the group that interleaved stages run, 2 where DualPipe feeds both ends, else 1

    Args:
        layout: the layout

    Returns:
        micro-batches [1]

    Source:
        Megatron-LM interleaved schedule, microbatch_group_size_per_vp_stage; DeepSeek-AI 2024,
        arXiv:2412.19437, section 3.2.1

    >>> micro_batch_multiple(Layout(pipeline=4, virtual_pipeline=2))
    4
    """
    if layout.virtual_pipeline > 1:
        return layout.virtual_group or layout.pipeline
    return 2 if layout.schedule == "dualpipe" and layout.pipeline > 1 else 1


def _least_increment(group: int, rise: int) -> int:
    """The fewest sequences that the layout shares, times what keeps the batches few."""
    return group * max(1, -(-rise // (group * MOST_BATCHES)))


def _increment_without_end(stage: RunStage) -> list[Problem]:
    if stage.batch_increment is None:
        return []
    message = f"batch_increment {stage.batch_increment} says how a batch rises, and no batch says where it ends"
    fix = "give final_global_batch, or leave batch_increment out"
    return [Problem(field="batch_increment", code="increment_needs_final_batch", message=message, fix=fix)]


def _falling(first: int, final: int) -> list[Problem]:
    if final > first:
        return []
    message = f"the batch of a stage rises from global_batch {first} to final_global_batch {final}, which is no rise"
    fix = f"set final_global_batch above {first}, or leave it out"
    return [Problem(field="final_global_batch", code="batch_rises", message=message, fix=fix)]


def _uneven_increment(increment: int, group: int) -> list[Problem]:
    if increment % group == 0:
        return []
    message = f"the layout shares {group} sequences at once, of which a rise by {increment} is not a multiple"
    below = increment // group * group
    fix = f"set batch_increment to {f'{below} or ' if below else ''}{below + group}"
    return [Problem(field="batch_increment", code="increment_is_whole", message=message, fix=fix)]


def _too_many(first: int, final: int, increment: int, group: int) -> list[Problem]:
    if -(-(final - first) // increment) <= MOST_BATCHES:
        return []
    message = f"{increment} sequences at a time make more than {MOST_BATCHES} batches from {first} to {final}"
    fix = f"set batch_increment to {_least_increment(group, final - first)} or more"
    return [Problem(field="batch_increment", code="ramp_has_few_batches", message=message, fix=fix)]


def _at(index: int, problems: Iterable[Problem]) -> list[Problem]:
    return [replace(one, field=f"{STAGES}.{index}.{one.field}") for one in problems]


def _refuse_stages_without_steps(recipe: Recipe) -> None:
    """Refuse a stage, or an end of the run, that the last step before it already reaches."""
    schedule = schedule_of(recipe)
    if schedule is None:
        return
    empty = [index for index, stretch in enumerate(schedule.stretches) if not sum(stretch.steps)]
    fields = [f"{STAGES}.{index}.until_tokens" for index in empty]
    if not schedule.last_steps:
        fields.append("recipe.training_tokens")
    if fields:
        message = "the step before already trains these tokens, so nothing is left for a step of this stage"
        fix = "set stages farther apart than the tokens of one step"
        raise Refused(*(Problem(field=field, code="stage_has_a_step", message=message, fix=fix) for field in fields))
