"""What would make a job fit: which single change saves how much memory, and what does it cost in time?"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from service.errors import Refused
from service.estimator.cross_entropy import CROSS_ENTROPIES
from service.estimator.device import beside_allocator, usable_bytes
from service.estimator.filled import filled
from service.estimator.memory import stage_bytes
from service.estimator.memory_parts import Change, Memory
from service.estimator.names import OptimizerName
from service.estimator.question import Question, Software
from service.estimator.resolve import Resolved, resolve
from service.estimator.stage_answers import reserved_peak_bytes, slowest_step, stages_of, total_seconds
from service.estimator.verdict import verdict_of
from service.units import BYTES, said

MOST_CHANGES = 6
"""Changes that an answer tries. Source: a choice; more would cost an answer its speed."""

LEAST_SAVING = 0.01
"""Share of the device peak that a change must save to be worth a line. Source: a choice; less is within the spread."""

SMALLER_OPTIMIZER: OptimizerName = "adamw-8bit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One changed question."""

    field: str
    """Field that changes."""
    value: str
    """Its new value."""
    question: Question
    """The question with it, and with what follows from it left to be filled."""


def advised(memory: Memory, resolved: Resolved) -> Memory:
    """The memory part of an answer with what to change where it does not surely fit.

    Args:
        memory: the memory part
        resolved: the question

    Returns:
        the same with changes and suggestions; as it was where it fits
    """
    if verdict_of(memory.oom_probability_fraction) == "fits":
        return memory
    changes = ranked_changes(resolved, memory.biggest_line)
    return replace(memory, changes=changes, suggestions=tuple(map(in_words, changes)))


def ranked_changes(resolved: Resolved, biggest: str) -> tuple[Change, ...]:
    """Single changes that save memory, those first that make the job fit, and among them the cheapest in time.

    Args:
        resolved: the question, which does not surely fit
        biggest: kind of the largest line of the fullest stage

    Returns:
        the changes with what each saves and costs
    """
    before = _device_and_step(resolved.question)
    usable = usable_bytes(resolved.job.gpu)
    found = []
    for trial, (device, seconds) in islice(_legal(resolved, biggest), MOST_CHANGES):
        if before[0] - device > LEAST_SAVING * before[0]:
            found.append(
                Change(
                    field=trial.field,
                    value=trial.value,
                    saves_bytes=before[0] - device,
                    device_peak_bytes=device,
                    fits=device <= usable,
                    slower_fraction=seconds / before[1] - 1,
                )
            )
    return tuple(sorted(found, key=lambda change: (not change.fits, _cost(change))))


def _cost(change: Change) -> float:
    """What ranks a change: time lost where it fits, memory still missing where it does not."""
    return change.slower_fraction if change.fits else change.device_peak_bytes


def _device_and_step(question: Question) -> tuple[float, float]:
    """The fullest GPU of a question on its device, and the seconds of its step."""
    found = resolve(question)
    job, degrees, layout = found.job, found.degrees, found.question.layout
    stages = stages_of(job, degrees, layout)
    held = [stage_bytes(job, degrees, one.stage, one.load, layout) for one in stages]
    reserved = max(reserved_peak_bytes(job, float(one.peak), float(one.held)) for one in held)
    return reserved + beside_allocator(job)[1], total_seconds(slowest_step(job, degrees, layout, stages))


def _legal(resolved: Resolved, biggest: str) -> Iterator[tuple[Trial, tuple[float, float]]]:
    """The trials that break no rule, each with its device peak and its step."""
    moving = biggest in ("activations", "logits", "recomputed_activations", "layer_buffers")
    first, then = (_of_activations, _of_states) if moving else (_of_states, _of_activations)
    for trial in (*first(resolved), *then(resolved)):
        try:
            yield trial, _device_and_step(trial.question)
        except Refused:
            continue


def _of_activations(resolved: Resolved) -> Iterator[Trial]:
    job, recipe = resolved.job, resolved.question.recipe
    for choice in ("selective", "full"):
        if job.recompute.granularity not in ("full", choice):
            yield _of_recipe(resolved, "recompute", choice)
    if recipe.micro_batch > 1:
        yield _of_recipe(resolved, "micro_batch", 1)
    if recipe.attention == "eager":
        yield _of_recipe(resolved, "attention", "flash")
    yield from _smaller_loss(resolved)
    for axis in ("tensor", "context"):
        yield from _split(resolved, axis)


def _of_states(resolved: Resolved) -> Iterator[Trial]:
    recipe, layout, stack = resolved.question.recipe, resolved.question.layout, resolved.job.stack
    can_shard = stack.pipeline_zero_stages if layout.pipeline > 1 else stack.zero_stages
    more = [stage for stage in sorted(can_shard) if stage > filled(layout.zero_stage)]
    if more and filled(layout.data) * layout.context > 1:
        yield _of_layout(resolved, "zero_stage", more[0], reshard_after_forward=None)
    for axis in ("tensor", "pipeline"):
        yield from _split(resolved, axis)
    if layout.offload == "none":
        yield _of_layout(resolved, "offload", "optimizer")
    if recipe.optimizer == "adamw" and recipe.moment_dtype is None:
        yield _of_recipe(resolved, "optimizer", SMALLER_OPTIMIZER)


def _of_recipe(resolved: Resolved, name: str, value: Any) -> Trial:
    """One field of the recipe changed."""
    changed = replace(resolved.question.recipe, **{name: value})
    return Trial(field=f"recipe.{name}", value=str(value), question=replace(resolved.question, recipe=changed))


def _of_layout(resolved: Resolved, name: str, value: Any, **beside: Any) -> Trial:
    """One field of the layout changed, and what follows from it."""
    changed = replace(resolved.question.layout, **{name: value}, **beside)
    return Trial(field=f"layout.{name}", value=str(value), question=replace(resolved.question, layout=changed))


def _smaller_loss(resolved: Resolved) -> Iterator[Trial]:
    """The cross entropy that holds least of those that the software has."""
    job = resolved.job
    element = job.precision.element_bytes
    least = min(job.implementation.cross_entropies, key=lambda name: CROSS_ENTROPIES[name].logit_bytes(element))
    if CROSS_ENTROPIES[least].logit_bytes(element) < job.cross_entropy.logit_bytes(element):
        given = resolved.question.recipe.stack
        software = given if isinstance(given, Software) else Software(name=job.software.name)
        recipe = replace(resolved.question.recipe, stack=replace(software, cross_entropy=least))
        question = replace(resolved.question, recipe=recipe)
        yield Trial(field="recipe.stack.cross_entropy", value=least, question=question)


def _split(resolved: Resolved, axis: str) -> Iterator[Trial]:
    """Twice the degree of one axis, half the replicas, the batch kept; what was left to defaults follows."""
    layout = resolved.question.layout
    data, degree = filled(layout.data), getattr(layout, axis)
    if axis not in resolved.job.stack.axes or data % 2:
        return
    beside: dict[str, Any] = {"data": data // 2}
    if layout.shard_group == data * layout.context:
        beside["shard_group"] = None
    if layout.expert_tensor == (1 if layout.expert > 1 else layout.tensor):
        beside["expert_tensor"] = None
    if layout.virtual_group == layout.pipeline:
        beside["virtual_group"] = None
    if axis == "tensor" and layout.tensor == 1:
        beside["sequence_parallel"] = None
    if axis == "pipeline":
        beside |= {"stage_layers": None, "reshard_after_forward": None}
    yield _of_layout(resolved, axis, 2 * degree, **beside)


def in_words(change: Change) -> str:
    """A change as a person reads it.

    Args:
        change: the change

    Returns:
        what to set, what it saves, what it costs, and whether it is enough

    >>> full = Change(
    ...     field="recipe.recompute", value="full", saves_bytes=2.0**30, device_peak_bytes=1.0, fits=True,
    ...     slower_fraction=0.3,
    ... )
    >>> in_words(full)
    'recompute full: saves 1 GiB, 30 % slower, fits'
    """
    percent = round(100 * change.slower_fraction)
    pace = "as fast" if percent == 0 else f"{abs(percent)} % {'slower' if percent > 0 else 'faster'}"
    enough = "fits" if change.fits else "not enough alone"
    return f"{change.field.partition('.')[2]} {change.value}: saves {said(change.saves_bytes, BYTES)}, {pace}, {enough}"
