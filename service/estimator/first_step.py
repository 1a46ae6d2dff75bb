"""What is not there yet in the first step?"""

from typing import Literal

from service.estimator.memory import LIVE, TOLD_AS, StageBytes
from service.estimator.memory_parts import Phase

StepName = Literal["first", "later"]
Moment = Literal["start", "forward", "loss", "backward", "reduction", "optimizer", "end"]

MOMENTS: dict[Phase, Moment] = {
    "loss": "loss",
    "backward": "backward",
    "reduction": "reduction",
    "optimizer": "optimizer",
    "idle": "end",
}
"""The moment of a step at which each phase is fullest."""

LAZY = ("optimizer_states", "optimizer_scales")
"""Kinds that the optimizer makes in its first step. Source: torch.optim (lazy state)."""

AFTER_BACKWARD = ("gradient_placeholders",)
"""Kinds that the first backward pass makes."""


def first_step_peak_bytes(held: StageBytes, *, several: bool) -> float:
    """Live bytes of one rank at the peak of the first step.

    Formula:
        the highest of the moments, without what the optimizer makes in that step until it runs

    Args:
        held: bytes of the rank by kind
        several: whether the step has more than one micro-batch

    Returns:
        bytes of one rank [byte]

    Source:
        torch.optim (lazy state)

    >>> from service.estimator.memory import stage_bytes
    >>> from service.estimator.samples import sample_degrees, sample_job, sample_load, sample_resolved
    >>> from service.estimator.stages import stage_at
    >>> job, degrees, layout = sample_job(), sample_degrees(), sample_resolved().question.layout
    >>> held = stage_bytes(job, degrees, stage_at(job, degrees, 0, None, 1), sample_load(), layout)
    >>> held.peak == held.at("loss"), first_step_peak_bytes(held, several=True) == held.at("optimizer")
    (True, True)
    """
    return max(_first_step_bytes(held, phase, several=several) for phase in LIVE)


def first_step_lines(held: StageBytes, *, several: bool) -> dict[str, float]:
    """What one rank holds at the peak of the first step.

    Args:
        held: bytes of the rank by kind
        several: whether the step has more than one micro-batch

    Returns:
        bytes by kind [byte]
    """
    fullest = max(LIVE, key=lambda phase: _first_step_bytes(held, phase, several=several))
    return live_bytes(held, LIVE[fullest], missing_kinds("first", MOMENTS[fullest], several=several))


def _first_step_bytes(held: StageBytes, phase: Phase, *, several: bool) -> float:
    missing = missing_kinds("first", MOMENTS[phase], several=several)
    return float(held.at(phase)) - sum(float(getattr(held, kind)) for kind in missing)


def missing_kinds(step: StepName, moment: Moment, *, several: bool) -> tuple[str, ...]:
    """Kinds that are not there yet at a moment of a step.

    Args:
        step: the first step, or a later one
        moment: where in the step
        several: whether a micro-batch has run backward before

    Returns:
        the kinds

    >>> missing_kinds("first", "loss", several=True), missing_kinds("later", "loss", several=True)
    (('optimizer_states', 'optimizer_scales'), ())
    """
    if step == "later" or moment in ("optimizer", "end"):
        return ()
    return LAZY if several or moment in ("backward", "reduction") else (*LAZY, *AFTER_BACKWARD)


def live_bytes(held: StageBytes, kinds: tuple[str, ...], missing: tuple[str, ...]) -> dict[str, float]:
    """Bytes of one rank by the names that answers tell them by.

    Args:
        held: bytes of the rank by kind
        kinds: kinds that are live
        missing: those of them that are not there yet

    Returns:
        bytes by kind, those of zero left out [byte]

    Source:
        memory.LIVE

    Formula:
        sum of the kinds that share a name
    """
    told: dict[str, float] = {}
    for kind in kinds:
        amount = 0.0 if kind in missing else float(getattr(held, kind))
        if amount:
            name = TOLD_AS.get(kind, kind)
            told[name] = told.get(name, 0.0) + amount
    return told
