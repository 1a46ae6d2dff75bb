"""Which single changes of a question may save memory? One ladder of values a field, the gentlest first."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from service.estimator.cross_entropy import CROSS_ENTROPIES
from service.estimator.filled import filled
from service.estimator.names import OffloadName
from service.estimator.question import Question, Software
from service.estimator.resolve import Resolved

MOST_DOUBLINGS = 5
"""How often a degree is doubled. Source: a choice; 32 times as much is another job."""

OFFLOADS: dict[OffloadName, tuple[OffloadName, ...]] = {
    "none": ("optimizer", "activations", "optimizer-and-activations", "model"),
    "optimizer": ("optimizer-and-activations", "model"),
    "activations": ("optimizer-and-activations", "model"),
    "optimizer-and-activations": ("model",),
    "model": (),
}
"""What can be offloaded beyond what is."""

OF_ACTIVATIONS = ("activations", "logits", "recomputed_activations", "layer_buffers")
"""Lines that hold activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One changed question."""

    field: str
    """Field that changes."""
    value: str
    """Its new value."""
    also: tuple[str, ...] = ()
    """Fields that have to change with it."""
    question: Question
    """The question as it was asked but for them."""


Ladder: TypeAlias = Iterable[Trial]
"""Values of one field."""


def single_changes(asked: Question, resolved: Resolved, biggest: str, factor: float) -> Iterator[Ladder]:
    """The ladders of a question, those first that make its largest line smaller.

    Args:
        asked: the question as it was asked
        resolved: the same with every default filled
        biggest: kind of the largest line
        factor: how many times its room the job takes [1]

    Yields:
        one ladder a field
    """
    axes = [_splits(asked, resolved, axis, factor) for axis in ("expert", "tensor", "context", "pipeline")]
    of_states = [_zero_stages(asked, resolved), _offloads(asked), _narrower_moments(asked, resolved)]
    of_activations = [_recompute(asked, resolved), _micro_batches(asked), _kernels(asked), _losses(asked, resolved)]
    moving = biggest in OF_ACTIVATIONS
    yield from (*of_activations, *axes, *of_states) if moving else (*of_states, *axes, *of_activations)


def last_resorts(asked: Question, factor: float) -> Iterator[Ladder]:
    """More GPUs, and methods that train less: what is left where no other field is enough.

    Args:
        asked: the question as it was asked
        factor: how many times its room the job takes [1]

    Yields:
        one ladder a field
    """
    yield _more_gpus(asked, factor)
    if asked.recipe.method == "full":
        yield [_of_recipe(asked, "method", name) for name in ("lora", "qlora")]


def _of_recipe(asked: Question, name: str, value: Any) -> Trial:
    recipe = replace(asked.recipe, **{name: value})
    return Trial(field=f"recipe.{name}", value=str(value), question=replace(asked, recipe=recipe))


def _of_layout(asked: Question, name: str, value: Any, data: int | None) -> Trial:
    """One field of the layout changed, and the replicas where the question names them."""
    also = () if data == asked.layout.data else (f"layout.data={data}",)
    layout = replace(asked.layout, **{name: value, "data": data})
    return Trial(field=f"layout.{name}", value=str(value), also=also, question=replace(asked, layout=layout))


def _recompute(asked: Question, resolved: Resolved) -> Ladder:
    own = resolved.job.recompute
    more = ("selective", "full") if own.granularity == "none" else ("full",)
    is_all = own.granularity == "full" and own.method != "block"
    return [] if is_all else [_of_recipe(asked, "recompute", choice) for choice in more]


def _micro_batches(asked: Question) -> Ladder:
    half = asked.recipe.micro_batch // 2
    while half:
        yield _of_recipe(asked, "micro_batch", half)
        half //= 2


def _kernels(asked: Question) -> Ladder:
    return [_of_recipe(asked, "attention", "flash")] if asked.recipe.attention == "eager" else []


def _losses(asked: Question, resolved: Resolved) -> Ladder:
    """The cross entropy that holds least of those that the software has."""
    job = resolved.job
    element = job.precision.element_bytes
    least = min(job.implementation.cross_entropies, key=lambda name: CROSS_ENTROPIES[name].logit_bytes(element))
    if CROSS_ENTROPIES[least].logit_bytes(element) >= job.cross_entropy.logit_bytes(element):
        return []
    given = asked.recipe.stack
    software = given if isinstance(given, Software) else Software(name=job.software.name)
    recipe = replace(asked.recipe, stack=replace(software, cross_entropy=least))
    return [Trial(field="recipe.stack.cross_entropy", value=least, question=replace(asked, recipe=recipe))]


def _multiples(factor: float) -> list[int]:
    """By how much to multiply a degree: from where on it may be enough, for k-fold degrees save at most k-fold bytes.

    >>> _multiples(3.5), _multiples(100.0)
    ([4, 8, 16, 32, 2], [32, 16, 8, 4, 2])
    """
    every = [2**power for power in range(1, MOST_DOUBLINGS + 1)]
    enough = [times for times in every if times >= factor] or every[-1:]
    return [*enough, *(times for times in reversed(every) if times < enough[0])]


def _splits(asked: Question, resolved: Resolved, axis: str, factor: float) -> Ladder:
    """Multiples of one axis with as many fewer replicas, which experts alone share."""
    if axis == "expert" and not resolved.job.model.num_experts:
        return
    degree, data = getattr(asked.layout, axis), asked.layout.data
    for times in _multiples(factor):
        if axis == "expert" or data is None:
            yield _of_layout(asked, axis, degree * times, data)
        elif data % times == 0:
            yield _of_layout(asked, axis, degree * times, data // times)


def _zero_stages(asked: Question, resolved: Resolved) -> Ladder:
    now = filled(resolved.question.layout.zero_stage)
    more = [stage for stage in sorted(resolved.job.stack.zero_stages) if stage > now]
    return [_of_layout(asked, "zero_stage", stage, asked.layout.data) for stage in more]


def _offloads(asked: Question) -> Ladder:
    return [_of_layout(asked, "offload", more, asked.layout.data) for more in OFFLOADS[asked.layout.offload]]


def _narrower_moments(asked: Question, resolved: Resolved) -> Ladder:
    recipe = asked.recipe
    if recipe.optimizer != "adamw" or recipe.moment_dtype is not None:
        return []
    if "bf16" in resolved.job.stack.moment_dtypes:
        return [_of_recipe(asked, "moment_dtype", "bf16")]
    return [_of_recipe(asked, "optimizer", "adamw-8bit")]


def _more_gpus(asked: Question, factor: float) -> Ladder:
    for times in _multiples(factor):
        gpus, data = asked.cluster.gpus * times, asked.layout.data and asked.layout.data * times
        also = () if data is None else (f"layout.data={data}",)
        changed = replace(asked, cluster=replace(asked.cluster, gpus=gpus), layout=replace(asked.layout, data=data))
        yield Trial(field="cluster.gpus", value=str(gpus), also=also, question=changed)
