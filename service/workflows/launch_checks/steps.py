"""What does the step probe run, and what was predicted of it? One replica of the model at two reduced depths."""

from collections.abc import Iterator, Sequence
from typing import Any

from service.estimator.estimate import estimate
from service.estimator.interval import Interval
from service.estimator.resolve import Resolved
from service.workflows.launch_checks.items import Expected
from service.workflows.launch_checks.live_bytes import live_step_bytes
from service.workflows.launch_checks.target import Target
from service.workflows.wire import to_wire

STEPS = 3
"""Steps whose memory is told: the first, one with the optimizer's states, one more."""

TOLD_STEPS = (1, STEPS)
"""Steps whose memory the probe tells. Source: definition; those between are like the last."""

TIMED_STEPS = 5
"""Steps whose time is told. Source: a choice."""

CPU_TIMED_STEPS = 3
"""The same on a processor. Source: a choice."""


def step_parameters(steps: Sequence[Resolved], *, timed_steps: int) -> dict[str, Any]:
    """What the step probe is told.

    Args:
        steps: what it runs, at each depth
        timed_steps: steps whose time counts [1]

    Returns:
        model, recipe, depths and numbers of steps
    """
    return {
        **_noun(steps[0]),
        "depths": [one.question.model.num_hidden_layers for one in steps],
        "steps": STEPS,
        "timed_steps": timed_steps,
    }


def profile_parameters(step: Resolved) -> dict[str, Any]:
    """What the profile probe is told.

    Args:
        step: what it runs

    Returns:
        model, recipe and depth
    """
    return {**_noun(step), "depth": step.question.model.num_hidden_layers}


def _noun(step: Resolved) -> dict[str, Any]:
    return {"model": to_wire(step.question.model), "recipe": to_wire(step.question.recipe)}


def step_expected(steps: Sequence[Resolved], target: Target) -> tuple[Expected, ...]:
    """What the step probe is to bring.

    Args:
        steps: what it runs, at each depth
        target: the machine

    Returns:
        bytes of the first and of later steps and seconds, with predictions where a formula holds for the device
    """
    return tuple(expected for one in steps for expected in (_on_gpu(one, target) if target.is_gpu else _live(one)))


def whole_expected(whole: Resolved, target: Target) -> tuple[Expected, ...]:
    """What formulas say of the last step of the whole model, in the step probe's own configuration.

    Args:
        whole: that configuration
        target: the machine

    Returns:
        bytes and seconds, none of which is measured
    """
    return tuple(one for one in step_expected((whole,), target) if one.shape.get("step", STEPS) == STEPS)


def _live(step: Resolved) -> Iterator[Expected]:
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


def _on_gpu(step: Resolved, target: Target) -> Iterator[Expected]:
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
