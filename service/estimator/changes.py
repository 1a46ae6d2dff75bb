"""What would make a job fit: which single change saves how much memory, and what does it cost in time?"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from service.errors import Refused
from service.estimator.cross_entropy import CROSS_ENTROPIES
from service.estimator.degrees import degrees_of
from service.estimator.device import beside_allocator, usable_bytes
from service.estimator.filled import filled
from service.estimator.job import Job, recompute_of
from service.estimator.memory import stage_bytes
from service.estimator.memory_parts import Change, Memory
from service.estimator.names import OptimizerName
from service.estimator.optimizers import OPTIMIZERS
from service.estimator.question import Layout, Recipe
from service.estimator.resolve import Resolved, problems_of_job
from service.estimator.software import cross_entropy_of
from service.estimator.stage_answers import reserved_peak_bytes, stage_of, total_seconds
from service.estimator.step_time import step_seconds
from service.estimator.verdict import verdict_of
from service.units import BYTES, said

MOST_CHANGES = 6
"""Changes that an answer tries. Source: a choice; more would cost an answer its speed."""

LEAST_SAVING = 0.01
"""Share of the device peak that a change must save to be worth a line. Source: a choice; less is within the spread."""

SMALLER_OPTIMIZER: OptimizerName = "adamw-8bit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One changed job."""

    field: str
    """Field that changes."""
    value: str
    """Its new value."""
    job: Job
    recipe: Recipe
    layout: Layout


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
    before = _device_and_step(resolved.job, resolved.question.recipe, resolved.question.layout)
    usable = usable_bytes(resolved.job.gpu)
    found = []
    for trial in list(_legal(resolved, biggest))[:MOST_CHANGES]:
        device, seconds = _device_and_step(trial.job, trial.recipe, trial.layout)
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


def _device_and_step(job: Job, recipe: Recipe, layout: Layout) -> tuple[float, float]:
    """The fuller end of the pipeline on its device, and the seconds of its step."""
    degrees = degrees_of(recipe, layout)
    ends = {0, layout.pipeline - 1}
    loaded = [stage_of(job, degrees, layout, index) for index in sorted(ends)]
    held = [stage_bytes(job, degrees, one.stage, one.load, layout) for one in loaded]
    peaks = [reserved_peak_bytes(job, float(one.peak), float(one.held)) for one in held]
    seconds = max(total_seconds(step_seconds(job, degrees, one.stage, one.load, layout)) for one in loaded)
    return max(peaks) + beside_allocator(job)[1], seconds


def _legal(resolved: Resolved, biggest: str) -> Iterator[Trial]:
    moving = biggest in ("activations", "logits", "recomputed_activations", "layer_buffers")
    first, then = (_of_activations, _of_states) if moving else (_of_states, _of_activations)
    for trial in (*first(resolved), *then(resolved)):
        try:
            degrees = degrees_of(trial.recipe, trial.layout)
        except Refused:
            continue
        if not problems_of_job(trial.job, trial.layout, degrees):
            yield trial


def _of_activations(resolved: Resolved) -> Iterator[Trial]:
    job, recipe, layout = resolved.job, resolved.question.recipe, resolved.question.layout
    for choice in ("selective", "full"):
        if job.recompute.granularity not in ("full", choice):
            changed = replace(recipe, recompute=choice)
            yield _recipe_trial(resolved, "recipe.recompute", choice, changed)
    if recipe.micro_batch > 1:
        yield _recipe_trial(resolved, "recipe.micro_batch", "1", replace(recipe, micro_batch=1))
    if recipe.attention == "eager":
        yield _recipe_trial(resolved, "recipe.attention", "flash", replace(recipe, attention="flash"))
    yield from _smaller_loss(resolved)
    for axis in ("tensor", "context"):
        yield from _split(resolved, layout, axis)


def _of_states(resolved: Resolved) -> Iterator[Trial]:
    recipe, layout, stack = resolved.question.recipe, resolved.question.layout, resolved.job.stack
    can_shard = stack.pipeline_zero_stages if layout.pipeline > 1 else stack.zero_stages
    more = [stage for stage in sorted(can_shard) if stage > filled(layout.zero_stage)]
    if more and filled(layout.data) * layout.context > 1:
        changed = replace(layout, zero_stage=more[0], reshard_after_forward=more[0] == 3 and layout.pipeline == 1)
        yield Trial(field="layout.zero_stage", value=str(more[0]), job=resolved.job, recipe=recipe, layout=changed)
    for axis in ("tensor", "pipeline"):
        yield from _split(resolved, layout, axis)
    if layout.offload == "none":
        changed = replace(layout, offload="optimizer")
        yield Trial(field="layout.offload", value="optimizer", job=resolved.job, recipe=recipe, layout=changed)
    if recipe.optimizer == "adamw" and recipe.moment_dtype is None:
        small = replace(recipe, optimizer=SMALLER_OPTIMIZER)
        yield _recipe_trial(resolved, "recipe.optimizer", SMALLER_OPTIMIZER, small)


def _recipe_trial(resolved: Resolved, field: str, value: str, recipe: Recipe) -> Trial:
    job = replace(resolved.job, recipe=recipe, recompute=recompute_of(recipe), optimizer=OPTIMIZERS[recipe.optimizer])
    return Trial(field=field, value=value, job=job, recipe=recipe, layout=resolved.question.layout)


def _smaller_loss(resolved: Resolved) -> Iterator[Trial]:
    """The cross entropy that holds least of those that the software has."""
    job, recipe = resolved.job, resolved.question.recipe
    element = job.precision.element_bytes
    least = min(job.implementation.cross_entropies, key=lambda name: CROSS_ENTROPIES[name].logit_bytes(element))
    if CROSS_ENTROPIES[least].logit_bytes(element) < job.cross_entropy.logit_bytes(element):
        software = replace(job.software, cross_entropy=least)
        changed = replace(job, software=software, cross_entropy=cross_entropy_of(software))
        yield Trial(
            field="recipe.stack.cross_entropy",
            value=least,
            job=changed,
            recipe=replace(recipe, stack=software),
            layout=resolved.question.layout,
        )


def _split(resolved: Resolved, layout: Layout, axis: str) -> Iterator[Trial]:
    """Twice the degree of one axis, half the replicas, the batch kept."""
    data, degree = filled(layout.data), getattr(layout, axis)
    if axis not in resolved.job.stack.axes or data % 2:
        return
    changed = replace(
        layout,
        data=data // 2,
        shard_group=max(1, data // 2 * layout.context * (2 if axis == "context" else 1)),
        virtual_group=None,
        **{axis: 2 * degree},
    )
    if axis == "tensor":
        changed = replace(changed, sequence_parallel=resolved.job.stack.splits_norms)
    changed = replace(changed, virtual_group=changed.pipeline)
    yield Trial(
        field=f"layout.{axis}",
        value=str(2 * degree),
        job=resolved.job,
        recipe=resolved.question.recipe,
        layout=changed,
    )


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
