"""Tasks for the worker: the requested probes, largest items first, within the time limit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, floor
from typing import Any

from service.calibration.live_bytes import live_step_bytes
from service.calibration.observations import Observed, predicted_value
from service.calibration.records import Environment, Measurement, ProbeName, ProbeTask
from service.estimator.answer import Basis, Interval
from service.estimator.constants import calibration_of
from service.estimator.estimate import estimate
from service.estimator.question import Gpu
from service.estimator.resolve import ResolvedQuestion
from service.features.launch_checks.items import Expected, Item
from service.features.launch_checks.kernels import attention_items, elementwise_items, predicted_seconds, product_items
from service.features.launch_checks.sizing import Sized
from service.features.launch_checks.targets import Target
from service.features.launch_checks.transfers import CONTEXT, bandwidth_items, collective_items, merged
from service.validation.serialization import to_wire

LAPLACE_SCALE = 1.6
"""The 80 % end of a Laplace distribution over its mean distance. Source: definition, ln 5."""

SPREAD_FRACTIONS: Mapping[ProbeName, float] = {
    "gemm": 0.08 * LAPLACE_SCALE,
    "attention": 0.06 * LAPLACE_SCALE,
    "collective": 0.125 * LAPLACE_SCALE,
    "bandwidth": 0.06,
    "elementwise": 0.3,
}
"""80 % of measurements lie within exp(-s) and exp(s) of a prediction.
Source: mean errors of shapes, ranks and GPUs that no fit saw, the worst but one of tests/calibration/
test_products.py (8 %), test_attention.py (6 %) and test_links.py (12.5 %) FIGURES; bandwidth:
constants.MEMORY_FRACTION, 0.84 to 0.94; elementwise: a choice, kernels differ in what they read twice."""

CONTEXT_SPREAD_FRACTION = 0.4
"""The same of a context. Source: device.CONTEXT_BYTES, from low to high."""


def with_predictions(expected: Iterable[Expected], gpu: Gpu | None) -> tuple[Expected, ...]:
    """Measurements to come, with what formulas say of them; those of steps have it already."""
    if gpu is None:
        return tuple(expected)
    return tuple(one if one.probe == "step" else replace(one, predicted=_predicted(one, gpu)) for one in expected)


def _predicted(expected: Expected, gpu: Gpu) -> Interval | None:
    if expected.probe == "elementwise":
        value: float | None = predicted_seconds({"operation": expected.operation, **expected.shape}, gpu)
    else:
        value = predicted_value(_unmeasured(expected, gpu), gpu)
    if value is None:
        return None
    spread = SPREAD_FRACTIONS.get(expected.probe, CONTEXT_SPREAD_FRACTION)
    basis: Basis = "analytic" if calibration_of(gpu) is None else "calibrated"
    return Interval(value * exp(-spread), value, value * exp(spread), basis)


def _unmeasured(expected: Expected, gpu: Gpu) -> Observed:
    """A measurement as formulas look at one, before it is taken."""
    measurement = Measurement(
        operation=expected.operation, shape=expected.shape, quantity=expected.quantity, value=0.0, low=0.0, high=0.0,
        repeats=0,
    )  # fmt: skip
    place = Environment(kind="cuda", device=gpu.slug, devices=1, memory_bytes=gpu.memory_bytes)
    return Observed(id="", run="", probe=expected.probe, measurement=measurement, environment=place)


STEPS = 3
"""Steps whose memory is told: the first, one with the optimizer's states, one more."""

TOLD_STEPS = (1, STEPS)
"""Steps whose memory the probe tells. Source: definition; those between are like the last."""

TIMED_STEPS = 5
"""Steps whose time is told. Source: a choice."""

CPU_TIMED_STEPS = 3
"""The same on a processor. Source: a choice."""


def step_parameters(steps: Sequence[ResolvedQuestion], *, timed_steps: int) -> dict[str, Any]:
    """What the step probe is told."""
    return {
        **_noun(steps[0]),
        "depths": [one.question.model.num_hidden_layers for one in steps],
        "steps": STEPS,
        "timed_steps": timed_steps,
    }


def profile_parameters(step: ResolvedQuestion) -> dict[str, Any]:
    """What the profile probe is told."""
    return {**_noun(step), "depth": step.question.model.num_hidden_layers}


def _noun(step: ResolvedQuestion) -> dict[str, Any]:
    return {"model": to_wire(step.question.model), "recipe": to_wire(step.question.recipe)}


def step_expected(steps: Sequence[ResolvedQuestion], target: Target) -> tuple[Expected, ...]:
    """What the step probe is to bring."""
    return tuple(expected for one in steps for expected in (_on_gpu(one, target) if target.is_gpu else _live(one)))


def whole_expected(whole: ResolvedQuestion, target: Target) -> tuple[Expected, ...]:
    """What formulas say of the last step of the whole model, in the step probe's own configuration."""
    return tuple(one for one in step_expected((whole,), target) if one.shape.get("step", STEPS) == STEPS)


def _live(step: ResolvedQuestion) -> Iterator[Expected]:
    """Live tensors, which are predicted whatever they live on."""
    depth = step.question.model.num_hidden_layers
    allocated, live = estimate(step.question).memory.allocated_peak_bytes, live_step_bytes(step)
    for number in TOLD_STEPS:
        yield Expected(
            probe="step",
            operation="live_bytes_peak",
            shape={"depth": depth, "step": number},
            quantity="bytes",
            predicted=_scaled(allocated, live.of_step(number) / allocated.value),
        )
    yield Expected(probe="step", operation="step", shape={"depth": depth}, quantity="seconds")


def _on_gpu(step: ResolvedQuestion, target: Target) -> Iterator[Expected]:
    """Peaks as the driver and the allocator tell them, and time."""
    depth = step.question.model.num_hidden_layers
    found = estimate(step.question)
    memory = found.memory
    scale = memory.stages[0].first_step_peak_bytes / memory.allocated_peak_bytes.value
    known = target.gpu is not None
    for number in TOLD_STEPS:
        first = scale if number == 1 else 1.0
        shape = {"depth": depth, "step": number}
        peaks = {
            "allocated_peak": _scaled(memory.allocated_peak_bytes, first),
            "reserved_peak": memory.reserved_peak_bytes if number > 1 else None,
            "device_peak": memory.device_peak_bytes if number > 1 and known else None,
        }
        for operation, predicted in peaks.items():
            yield Expected(probe="step", operation=operation, shape=shape, quantity="bytes", predicted=predicted)
    seconds = found.step.step_seconds if known else None
    yield Expected(probe="step", operation="step", shape={"depth": depth}, quantity="seconds", predicted=seconds)


def _scaled(interval: Interval, scale: float) -> Interval:
    return Interval(interval.low * scale, interval.value * scale, interval.high * scale, interval.basis)


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
    """What a launch check measures."""
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
