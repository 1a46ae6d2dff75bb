"""Which fields does every tool treat alike? What no file needs to hold, and what few of them can.

A tool's own table is merged over this one.
"""

from dataclasses import replace
from math import ceil
from typing import Any

from service.estimator.model.training import trains_everything
from service.estimator.names import StackName
from service.estimator.question import Question
from service.estimator.software.stacks import software_of
from service.exports.said import NOTHING, Rule, Rules, Said, Silent, lacking, takes_only


def usually(field: str, why: str, fix: str) -> Rule:
    """The rule of a choice of the software that has no setting: only the stack's usual way can be had.

    Args:
        field: name of the choice in `Software`
        why: why another value cannot be written; `{value}` stands for it
        fix: what to do then

    Returns:
        the rule
    """

    def rule(value: Any, question: Question) -> Said:
        plain = replace(question.recipe, stack=software_of(question.recipe).name)
        return NOTHING if value == getattr(software_of(plain), field) else lacking(why, fix, value)

    return rule


def only_stack(tool: str, *names: StackName) -> Rule:
    """The rule of the training software in the file of a tool that runs a certain one.

    Args:
        tool: what the tool is called
        names: the software that it runs

    Returns:
        the rule
    """
    return takes_only(
        names,
        f"the question is about {{value}}, and the file starts {tool}: numbers of the estimate are not this file's",
        f"ask with recipe.stack {' or '.join(names)} to see what this file takes",
    )


def _full_only(value: Any, question: Question) -> Said:
    if trains_everything(value):
        return NOTHING
    return lacking(
        "the file trains every parameter; frozen parts and adapters are made in code",
        "freeze parameters or add the adapters in the training script",
    )


def steps_of(question: Question) -> int | None:
    """Optimizer steps of the whole run, its stages not counted apart.

    Args:
        question: the question, every default filled

    Returns:
        steps; None where the question names no tokens
    """
    recipe = question.recipe
    if recipe.training_tokens is None:
        return None
    return ceil(recipe.training_tokens / (recipe.sequence_length * (recipe.global_batch or 1)))


def _environment(value: Any, question: Question) -> Said:
    if not value:
        return NOTHING
    return lacking(
        "how the allocator grows is set in the environment, not in this file",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; a launcher's file does",
    )


COMMON: Rules = {
    "recipe.global_batch_tokens": Silent("global_batch says the same in sequences"),
    "recipe.document_lengths": Silent("they describe the data, which the file only names"),
    "recipe.batching": takes_only(
        ("packed",), "padding each document to a sequence is the data loader's choice", "pad in the data loader"
    ),
    "recipe.stages": takes_only(
        ((),),
        "the file has one batch and one length for the whole run",
        "write a file for each stage, and start each from the checkpoint of the one before",
    ),
    "recipe.method": _full_only,
    "recipe.ema": takes_only((False,), "the tool keeps no moving average of the weights", "keep it in the script"),
    "recipe.expert_imbalance": Silent("it is what the router does, not what it is told"),
    "recipe.checkpoint": takes_only(
        (None,),
        "checkpoints are taken every so many steps, and the question says every so many seconds",
        "divide the time between checkpoints that the estimate gives by step_seconds",
    ),
    "recipe.stack.versions": takes_only(
        (None,),
        "versions of libraries are those that are installed",
        "install the versions of the question where the job runs",
    ),
    "recipe.stack.expandable_segments": _environment,
    "layout.rank_order": takes_only(
        ("tp-cp-ep-dp-pp",), "the tool numbers replicas before stages, and not as {value}", "leave rank_order out"
    ),
}
"""Rules that hold for most tools."""
