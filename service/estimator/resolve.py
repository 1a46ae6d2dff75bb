"""Which defaults does a question take? Every field filled, every assumption said, every rule checked."""

from dataclasses import dataclass, replace
from functools import lru_cache

from service.errors import Problem, Refused
from service.estimator import (
    abilities,
    attention_demands,
    measured_demands,
    megatron_demands,
    number_demands,
    order_demands,
    power_demands,
    run_demands,
    software_demands,
    software_rules,
    trainable,
)
from service.estimator.degrees import Degrees, degrees_of
from service.estimator.fill import filled_in
from service.estimator.job import Job, job_of
from service.estimator.parallelism import context, data, expert, pipeline, tensor
from service.estimator.question import Layout, Question
from service.estimator.rules import Rule, broken, unmet
from service.estimator.run_defaults import configuration_in, with_run
from service.estimator.run_stages import placed, questions_of

CONFIGURATIONS_KEPT = 256
"""Configurations that are worked out once for all questions which differ in their run alone. Source: a choice; more
than one sheet, or one comparison of prices, has."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resolved:
    """A question that can be answered. Each is itself alone, so what is worked out of one can be kept beside it."""

    question: Question
    """Every default filled."""
    job: Job
    """Its rows and ledger."""
    degrees: Degrees
    """Its degrees as plain numbers."""
    run_stages: "tuple[tuple[Resolved, ...], ...]" = ()
    """The first and, where the batch rises, the last configuration of each stage of the run before the last one."""


def resolve(question: Question) -> Resolved:
    """Fill every default of a question and check every rule.

    Args:
        question: the question as asked, names already looked up

    Returns:
        the question that can be answered

    Raises:
        Refused: one problem for each rule that it breaks
    """
    return with_run_of(question, configuration_of(question))


def configuration_of(question: Question) -> Resolved:
    """What a question asks of a step, whatever its run; questions that differ in their run alone share one.

    Args:
        question: the question as asked, names already looked up

    Returns:
        its configuration, itself a question that can be answered

    Raises:
        Refused: one problem for each rule that the question breaks
    """
    problems = run_problems(question)
    try:
        found = _configuration(configuration_in(question))
    except Refused as refused:
        raise Refused(*refused.problems, *problems) from None
    if problems:
        raise Refused(*problems)
    return found


def run_problems(question: Question) -> tuple[Problem, ...]:
    """What a question does not tell of its run, or tells twice, whatever its configuration.

    Args:
        question: the question as asked

    Returns:
        one problem for each unmet demand
    """
    return unmet(run_demands.DEMANDS, question, question.layout)


def with_run_of(question: Question, configuration: Resolved) -> Resolved:
    """A configuration that can be answered with the run of a question.

    Args:
        question: the question as asked
        configuration: its configuration

    Returns:
        the question that can be answered
    """
    full = with_run(configuration.question, question)
    return replace(
        configuration, question=full, job=replace(configuration.job, recipe=full.recipe, cluster=full.cluster)
    )


@lru_cache(maxsize=CONFIGURATIONS_KEPT)
def _configuration(question: Question) -> Resolved:
    full = filled_in(question)
    found = Resolved(question=full, job=job_of(full), degrees=degrees_of(full.recipe, full.layout))
    problems = _problems_of(found)
    if problems:
        raise Refused(*problems)
    return replace(found, run_stages=_run_stages(found)) if question.recipe.stages else found


def demands_unmet(job: Job, layout: Layout) -> tuple[Problem, ...]:
    """What software and GPU cannot do of a job, whatever its degrees.

    Args:
        job: the job
        layout: the layout, filled

    Returns:
        one problem for each unmet demand
    """
    return unmet(_DEMANDS, job, layout)


def _problems_of(found: Resolved) -> tuple[Problem, ...]:
    """The demands and rules that a question with every field filled breaks."""
    job, layout = found.job, found.question.layout
    return (*demands_unmet(job, layout), *broken(rules_of(layout), job, found.degrees))


def _run_stages(own: Resolved) -> tuple[tuple[Resolved, ...], ...]:
    """The configurations of each stage of the run; those of the recipe's own length share its ledger."""
    stages, problems = [], []
    for index in range(len(own.question.recipe.stages)):
        first, *last = questions_of(own.question, index)
        same = first.recipe.sequence_length == own.question.recipe.sequence_length
        job = replace(own.job, recipe=first.recipe) if same else job_of(first)
        found = [
            Resolved(question=one, job=replace(job, recipe=one.recipe), degrees=degrees_of(one.recipe, one.layout))
            for one in (first, *last)
        ]
        stages.append(tuple(found))
        problems += placed(dict.fromkeys(problem for one in found for problem in _problems_of(one)), index)
    if problems:
        raise Refused(*problems)
    return tuple(stages)


_DEMANDS = (
    *software_demands.DEMANDS,
    *megatron_demands.DEMANDS,
    *attention_demands.DEMANDS,
    *number_demands.DEMANDS,
    *abilities.DEMANDS,
    *order_demands.DEMANDS,
    *trainable.DEMANDS,
    *power_demands.DEMANDS,
    *measured_demands.DEMANDS,
)
"""What a job has to meet, whatever its degrees."""


def rules_of(layout: Layout) -> tuple[Rule, ...]:
    """The rules that a layout's choices bring with them.

    Args:
        layout: the layout, resolved

    Returns:
        the rules of every axis
    """
    return (
        *software_rules.RULES,
        *data.RULES,
        *tensor.RULES,
        *context.RULES,
        *(context.HEAD_RULES if layout.context_method == "ulysses" else context.BLOCK_RULES),
        *pipeline.RULES,
        *(pipeline.EVEN_RULES if layout.stage_layers is None else ()),
        *(pipeline.DUALPIPE_RULES if layout.schedule == "dualpipe" and layout.pipeline > 1 else ()),
        *expert.RULES,
    )
