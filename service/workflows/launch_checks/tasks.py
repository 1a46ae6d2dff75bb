"""What is a worker told to measure? The probes that were asked for, the largest entries first, within the time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

from service.calibration.records import ProbeName, ProbeTask
from service.workflows.launch_checks.attention import attention_items
from service.workflows.launch_checks.collective import collective_items, merged
from service.workflows.launch_checks.elementwise import elementwise_items
from service.workflows.launch_checks.items import Expected, Item
from service.workflows.launch_checks.memory import CONTEXT, bandwidth_items
from service.workflows.launch_checks.predicting import with_predictions
from service.workflows.launch_checks.products import product_items
from service.workflows.launch_checks.sized import Sized
from service.workflows.launch_checks.steps import (
    CPU_TIMED_STEPS,
    TIMED_STEPS,
    profile_parameters,
    step_expected,
    step_parameters,
    whole_expected,
)
from service.workflows.launch_checks.target import Target

SHARES: Mapping[ProbeName, float] = {
    "context": 0.03, "gemm": 0.22, "attention": 0.12, "bandwidth": 0.06, "elementwise": 0.1, "collective": 0.12,
    "step": 0.22, "profile": 0.13,
}  # fmt: skip
"""Share of the time that each probe has where all of them run. Source: a choice; steps and products tell most."""

START_SECONDS = 4.0
"""Time in which a probe's process starts and imports torch. Source: measured on small machines: 2 to 5 s."""

GRACE = 3.0
"""Time after which a probe is stopped, over the time that it should take. Source: a choice."""

LEAST_TIMEOUT_SECONDS = 60.0
"""Least time after which a probe is stopped. Source: a choice; a machine that others use is slow to start."""

REPEATS = 20
"""Repeats whose median counts. Source: a choice; the noise of a median of 20 is a quarter of one repeat's."""

FEWEST_REPEATS = 5
"""Repeats of what is too slow for REPEATS. Source: a choice; the fewest of which percentiles say anything."""

BESIDE_REPEATS = 6
"""Runs beside the repeats: warm-up, and the reference in higher precision. Source: a choice."""

MEMORY_SHARE = 0.4
"""Share of the device's memory that one entry may take. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a launch check is to measure."""

    tasks: tuple[ProbeTask, ...]
    """What the worker is told."""
    expected: tuple[Expected, ...]
    """What it is to bring, with what was predicted of it."""
    whole: tuple[Expected, ...] = ()
    """What is predicted of a step of the whole model, which nobody measures."""
    assumptions: tuple[str, ...]
    """What differs from the job, and what was left out."""


def planned(sized: Sized, target: Target, probes: Sequence[ProbeName], budget_seconds: float) -> Planned:
    """What a launch check measures.

    Args:
        sized: what the probes are about
        target: the machine
        probes: probes that were asked for
        budget_seconds: time that they have together [s]

    Returns:
        a task for each probe that has something to measure, and what was predicted
    """
    free = max(budget_seconds - START_SECONDS * len(probes), 0.5 * budget_seconds)
    whole = sum(SHARES[probe] for probe in probes)
    found = [_PROBES[probe](sized, target, free * SHARES[probe] / whole) for probe in probes]
    return Planned(
        tasks=tuple(task for one in found for task in one.tasks),
        expected=with_predictions((expected for one in found for expected in one.expected), target.gpu),
        whole=() if sized.whole is None else whole_expected(sized.whole, target),
        assumptions=(*sized.assumptions, *(said for one in found for said in one.assumptions)),
    )


def _task(probe: ProbeName, parameters: Mapping[str, Any], seconds: float, target: Target, ranks: int = 1) -> ProbeTask:
    told = {**parameters, "seconds": round(seconds, 3), "device": "cuda" if target.is_gpu else "cpu"}
    timeout = max(LEAST_TIMEOUT_SECONDS, GRACE * (START_SECONDS + seconds))
    return ProbeTask(probe=probe, parameters=told, timeout_seconds=round(timeout, 3), ranks=ranks)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The items for which there is time and memory, and how often each is repeated."""

    items: tuple[Item, ...]
    repeats: int
    left_out: tuple[str, ...]


def _chosen(probe: ProbeName, items: Sequence[Item], target: Target, seconds: float) -> _Chosen:
    """As many items as fit, those that a step spends most on first; all of them repeated equally often."""
    room = MEMORY_SHARE * target.memory_bytes
    fitting = [item for item in items if item.memory_bytes <= room]
    told = [f"{probe}: {item.name} takes too much memory to be measured" for item in items if item not in fitting]
    ordered = sorted(fitting, key=lambda item: -item.weight_flop)
    once = sum(item.once_seconds for item in ordered)
    repeats = min(REPEATS, floor(seconds / once) - BESIDE_REPEATS) if once else REPEATS
    if repeats >= FEWEST_REPEATS:
        return _Chosen(tuple(ordered), repeats, tuple(told))
    kept, spent = [], 0.0
    for item in ordered:
        needed = (FEWEST_REPEATS + BESIDE_REPEATS) * item.once_seconds
        if spent + needed <= seconds:
            kept.append(item)
            spent += needed
    if len(kept) < len(ordered):
        told.append(f"{probe}: {len(ordered) - len(kept)} of {len(ordered)} entries left out for want of time")
    return _Chosen(tuple(kept), FEWEST_REPEATS, tuple(told))


Source = Callable[[Sized, Target], tuple[tuple[Item, ...], tuple[str, ...]]]


def _listed(probe: ProbeName, key: str, source: Source) -> "Probe":
    """A probe whose parameters are a list of entries."""

    def make(sized: Sized, target: Target, seconds: float) -> Planned:
        items, unmeasured = source(sized, target)
        chosen = _chosen(probe, items, target, seconds)
        said = (*(f"{probe}: {one}" for one in unmeasured), *chosen.left_out)
        if not chosen.items:
            return Planned(tasks=(), expected=(), assumptions=said)
        parameters = {key: [item.entry for item in chosen.items], "repeats": chosen.repeats}
        expected = tuple(expected for item in chosen.items for expected in item.expected)
        return Planned(tasks=(_task(probe, parameters, seconds, target),), expected=expected, assumptions=said)

    return make


def _collective(sized: Sized, target: Target, seconds: float) -> Planned:
    items, unmeasured = collective_items(sized.resolved, target)
    chosen = _chosen("collective", items, target, seconds)
    if not chosen.items:
        return Planned(tasks=(), expected=(), assumptions=(*unmeasured, *chosen.left_out))
    parameters = {**merged(chosen.items), "repeats": chosen.repeats}
    return Planned(
        tasks=(_task("collective", parameters, seconds, target, target.ranks),),
        expected=tuple(expected for item in chosen.items for expected in item.expected),
        assumptions=(*unmeasured, *chosen.left_out),
    )


def _context(_: Sized, target: Target, seconds: float) -> Planned:
    ranks = target.ranks if target.is_gpu else 1
    task = _task("context", {}, seconds, target, ranks)
    return Planned(tasks=(task,), expected=(CONTEXT,), assumptions=())


def _step(sized: Sized, target: Target, seconds: float) -> Planned:
    if not sized.steps:
        return Planned(tasks=(), expected=(), assumptions=())
    timed = TIMED_STEPS if target.is_gpu else CPU_TIMED_STEPS
    task = _task("step", step_parameters(sized.steps, timed_steps=timed), seconds, target)
    return Planned(tasks=(task,), expected=step_expected(sized.steps, target), assumptions=())


def _profile(sized: Sized, target: Target, seconds: float) -> Planned:
    if not sized.steps:
        return Planned(tasks=(), expected=(), assumptions=())
    task = _task("profile", profile_parameters(sized.steps[0]), seconds, target)
    return Planned(tasks=(task,), expected=(), assumptions=())


Probe = Callable[[Sized, Target, float], Planned]

_PROBES: Mapping[ProbeName, Probe] = {
    "context": _context,
    "gemm": _listed("gemm", "products", lambda sized, target: product_items(sized.resolved, target)),
    "attention": _listed("attention", "kernels", lambda sized, target: attention_items(sized.resolved, target)),
    "bandwidth": _listed("bandwidth", "sizes_bytes", lambda _, target: (bandwidth_items(target), ())),
    "elementwise": _listed("elementwise", "kernels", lambda sized, target: elementwise_items(sized.resolved, target)),
    "collective": _collective,
    "step": _step,
    "profile": _profile,
}
"""How each probe's task is made."""
