"""Tasks for the worker: the requested probes, largest items first, within the time limit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, floor
from typing import Any

from service.calibration.observations import Observed, live_step_bytes, predicted_value
from service.calibration.records import Environment, Measurement, ProbeName, ProbeTask
from service.estimator.answer import Basis, Interval
from service.estimator.constants import calibration_of
from service.estimator.estimate import estimate
from service.estimator.question import Gpu
from service.estimator.resolve import ResolvedQuestion
from service.features.launch_checks.items import Expected, Item
from service.features.launch_checks.kernels import attention_items, elementwise_items, predicted_seconds, product_items
from service.features.launch_checks.sizing import SizedQuestion
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
    """Planned measurements with predictions; those of steps have them already."""
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
    """A planned measurement in the form that predictions take."""
    measurement = Measurement(
        operation=expected.operation, shape=expected.shape, quantity=expected.quantity, value=0.0, low=0.0, high=0.0,
        repeats=0,
    )  # fmt: skip
    place = Environment(kind="cuda", device=gpu.slug, devices=1, memory_bytes=gpu.memory_bytes)
    return Observed(id="", run="", probe=expected.probe, measurement=measurement, environment=place)


STEPS = 3
"""Steps run for memory: the first, one with optimizer states, one more."""

REPORTED_STEPS = (1, STEPS)
"""Steps whose memory the probe reports. Source: definition; those between are like the last."""

TIMED_STEPS = 5
"""Steps whose time the probe reports. Source: a choice."""

CPU_TIMED_STEPS = 3
"""The same on a processor. Source: a choice."""


def step_parameters(steps: Sequence[ResolvedQuestion], *, timed_steps: int) -> dict[str, Any]:
    """Parameters of the step probe."""
    return {
        **_model_and_recipe(steps[0]),
        "depths": [one.question.model.num_hidden_layers for one in steps],
        "steps": STEPS,
        "timed_steps": timed_steps,
    }


def profile_parameters(step: ResolvedQuestion) -> dict[str, Any]:
    """Parameters of the profile probe."""
    return {**_model_and_recipe(step), "depth": step.question.model.num_hidden_layers}


def _model_and_recipe(step: ResolvedQuestion) -> dict[str, Any]:
    return {"model": to_wire(step.question.model), "recipe": to_wire(step.question.recipe)}


def step_expected(steps: Sequence[ResolvedQuestion], target: Target) -> tuple[Expected, ...]:
    """Planned measurements of the step probe."""
    return tuple(expected for one in steps for expected in (_on_gpu(one, target) if target.is_gpu else _live(one)))


def whole_expected(whole: ResolvedQuestion, target: Target) -> tuple[Expected, ...]:
    """Predictions for the last step of the whole model, configured like the step probe."""
    return tuple(one for one in step_expected((whole,), target) if one.shape.get("step", STEPS) == STEPS)


def _live(step: ResolvedQuestion) -> Iterator[Expected]:
    """Planned sizes of live tensors, which do not depend on the device."""
    depth = step.question.model.num_hidden_layers
    allocated, live = estimate(step.question).memory.allocated_peak_bytes, live_step_bytes(step)
    for number in REPORTED_STEPS:
        yield Expected(
            probe="step",
            operation="live_bytes_peak",
            shape={"depth": depth, "step": number},
            quantity="bytes",
            predicted=_scaled(allocated, live.of_step(number) / allocated.value),
        )
    yield Expected(probe="step", operation="step", shape={"depth": depth}, quantity="seconds")


def _on_gpu(step: ResolvedQuestion, target: Target) -> Iterator[Expected]:
    """Planned peaks of the driver and the allocator, and step time."""
    depth = step.question.model.num_hidden_layers
    answer = estimate(step.question)
    memory = answer.memory
    scale = memory.stages[0].first_step_peak_bytes / memory.allocated_peak_bytes.value
    known = target.gpu is not None
    for number in REPORTED_STEPS:
        first = scale if number == 1 else 1.0
        shape = {"depth": depth, "step": number}
        peaks = {
            "allocated_peak": _scaled(memory.allocated_peak_bytes, first),
            "reserved_peak": memory.reserved_peak_bytes if number > 1 else None,
            "device_peak": memory.device_peak_bytes if number > 1 and known else None,
        }
        for operation, predicted in peaks.items():
            yield Expected(probe="step", operation=operation, shape=shape, quantity="bytes", predicted=predicted)
    seconds = answer.step.step_seconds if known else None
    yield Expected(probe="step", operation="step", shape={"depth": depth}, quantity="seconds", predicted=seconds)


def _scaled(interval: Interval, scale: float) -> Interval:
    return Interval(interval.low * scale, interval.value * scale, interval.high * scale, interval.basis)


SHARES: Mapping[ProbeName, float] = {
    "context": 0.03, "gemm": 0.22, "attention": 0.12, "bandwidth": 0.06, "elementwise": 0.1, "collective": 0.12,
    "step": 0.22, "profile": 0.13,
}  # fmt: skip
"""Share of the time for each probe when all run. Source: a choice; steps and products are the most informative."""

START_SECONDS = 4.0
"""Time for a probe process to start and import torch. Source: measured on small machines: 2 to 5 s."""

GRACE = 3.0
"""Timeout over the estimated time. Source: a choice."""

LEAST_TIMEOUT_SECONDS = 60.0
"""Shortest timeout. Source: a choice; a shared machine is slow to start."""

REPEATS = 20
"""Repeats whose median counts. Source: a choice; the noise of a median of 20 is a quarter of one repeat's."""

FEWEST_REPEATS = 5
"""Repeats of slow items. Source: a choice; the fewest with usable percentiles."""

BESIDE_REPEATS = 6
"""Runs beside the repeats: warm-up, and the reference in higher precision. Source: a choice."""

MEMORY_SHARE = 0.4
"""Share of device memory for one entry. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """Tasks of a launch check and their planned measurements."""

    tasks: tuple[ProbeTask, ...]
    """Tasks for the worker."""
    expected: tuple[Expected, ...]
    """Planned measurements with their predictions."""
    whole: tuple[Expected, ...] = ()
    """Predictions for a step of the whole model, which is not run."""
    assumptions: tuple[str, ...]
    """Differences from the job, and what was left out."""


def plan_probes(sized: SizedQuestion, target: Target, probes: Sequence[ProbeName], budget_seconds: float) -> ProbePlan:
    """Plan the tasks of a launch check."""
    free = max(budget_seconds - START_SECONDS * len(probes), 0.5 * budget_seconds)
    whole = sum(SHARES[probe] for probe in probes)
    plans = [_PROBES[probe](sized, target, free * SHARES[probe] / whole) for probe in probes]
    return ProbePlan(
        tasks=tuple(task for one in plans for task in one.tasks),
        expected=with_predictions((expected for one in plans for expected in one.expected), target.gpu),
        whole=() if sized.whole is None else whole_expected(sized.whole, target),
        assumptions=(*sized.assumptions, *(note for one in plans for note in one.assumptions)),
    )


def _task(probe: ProbeName, parameters: Mapping[str, Any], seconds: float, target: Target, ranks: int = 1) -> ProbeTask:
    complete = {**parameters, "seconds": round(seconds, 3), "device": "cuda" if target.is_gpu else "cpu"}
    timeout = max(LEAST_TIMEOUT_SECONDS, GRACE * (START_SECONDS + seconds))
    return ProbeTask(probe=probe, parameters=complete, timeout_seconds=round(timeout, 3), ranks=ranks)


@dataclass(frozen=True, slots=True)
class _Selection:
    """Items that fit the time and memory, and their repeats."""

    items: tuple[Item, ...]
    repeats: int
    left_out: tuple[str, ...]


def _select(probe: ProbeName, items: Sequence[Item], target: Target, seconds: float) -> _Selection:
    """Select the items that fit, largest share of a step first, all with the same repeats."""
    room = MEMORY_SHARE * target.memory_bytes
    fitting = [item for item in items if item.memory_bytes <= room]
    notes = [f"{probe}: {item.name} takes too much memory to be measured" for item in items if item not in fitting]
    ordered = sorted(fitting, key=lambda item: -item.weight_flop)
    once = sum(item.once_seconds for item in ordered)
    repeats = min(REPEATS, floor(seconds / once) - BESIDE_REPEATS) if once else REPEATS
    if repeats >= FEWEST_REPEATS:
        return _Selection(tuple(ordered), repeats, tuple(notes))
    selected, spent = [], 0.0
    for item in ordered:
        needed = (FEWEST_REPEATS + BESIDE_REPEATS) * item.once_seconds
        if spent + needed <= seconds:
            selected.append(item)
            spent += needed
    if len(selected) < len(ordered):
        notes.append(f"{probe}: {len(ordered) - len(selected)} of {len(ordered)} entries left out for want of time")
    return _Selection(tuple(selected), FEWEST_REPEATS, tuple(notes))


Source = Callable[[SizedQuestion, Target], tuple[tuple[Item, ...], tuple[str, ...]]]


def _item_probe(probe: ProbeName, key: str, source: Source) -> "Probe":
    """Planner of a probe whose parameters are a list of entries."""

    def make(sized: SizedQuestion, target: Target, seconds: float) -> ProbePlan:
        items, unmeasured = source(sized, target)
        selection = _select(probe, items, target, seconds)
        notes = (*(f"{probe}: {one}" for one in unmeasured), *selection.left_out)
        if not selection.items:
            return ProbePlan(tasks=(), expected=(), assumptions=notes)
        parameters = {key: [item.entry for item in selection.items], "repeats": selection.repeats}
        expected = tuple(expected for item in selection.items for expected in item.expected)
        return ProbePlan(tasks=(_task(probe, parameters, seconds, target),), expected=expected, assumptions=notes)

    return make


def _collective(sized: SizedQuestion, target: Target, seconds: float) -> ProbePlan:
    items, unmeasured = collective_items(sized.resolved, target)
    selection = _select("collective", items, target, seconds)
    if not selection.items:
        return ProbePlan(tasks=(), expected=(), assumptions=(*unmeasured, *selection.left_out))
    parameters = {**merged(selection.items), "repeats": selection.repeats}
    return ProbePlan(
        tasks=(_task("collective", parameters, seconds, target, target.ranks),),
        expected=tuple(expected for item in selection.items for expected in item.expected),
        assumptions=(*unmeasured, *selection.left_out),
    )


def _context(_: SizedQuestion, target: Target, seconds: float) -> ProbePlan:
    ranks = target.ranks if target.is_gpu else 1
    task = _task("context", {}, seconds, target, ranks)
    return ProbePlan(tasks=(task,), expected=(CONTEXT,), assumptions=())


def _step(sized: SizedQuestion, target: Target, seconds: float) -> ProbePlan:
    if not sized.steps:
        return ProbePlan(tasks=(), expected=(), assumptions=())
    timed = TIMED_STEPS if target.is_gpu else CPU_TIMED_STEPS
    task = _task("step", step_parameters(sized.steps, timed_steps=timed), seconds, target)
    return ProbePlan(tasks=(task,), expected=step_expected(sized.steps, target), assumptions=())


def _profile(sized: SizedQuestion, target: Target, seconds: float) -> ProbePlan:
    if not sized.steps:
        return ProbePlan(tasks=(), expected=(), assumptions=())
    task = _task("profile", profile_parameters(sized.steps[0]), seconds, target)
    return ProbePlan(tasks=(task,), expected=(), assumptions=())


Probe = Callable[[SizedQuestion, Target, float], ProbePlan]

_PROBES: Mapping[ProbeName, Probe] = {
    "context": _context,
    "gemm": _item_probe("gemm", "products", lambda sized, target: product_items(sized.resolved, target)),
    "attention": _item_probe("attention", "kernels", lambda sized, target: attention_items(sized.resolved, target)),
    "bandwidth": _item_probe("bandwidth", "sizes_bytes", lambda _, target: (bandwidth_items(target), ())),
    "elementwise": _item_probe(
        "elementwise", "kernels", lambda sized, target: elementwise_items(sized.resolved, target)
    ),
    "collective": _collective,
    "step": _step,
    "profile": _profile,
}
"""Planner of each probe."""
