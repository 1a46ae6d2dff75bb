"""Feasibility of one value of the open field: memory and limits, and the reason why it fails.

Live tensors only grow with the batch, the sequence and the layers. The allocator's cache grows too, up to the device's
end, where it is given back: there the bytes of a stage fall, and a larger value may fit where a smaller one did not.
Hence two monotonic conditions for each stage: too many live tensors, and too many bytes reserved while nothing is given
back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from service.answers.solutions import WhyNot
from service.errors import Problem, Refused
from service.estimator import estimate, estimate_memory
from service.estimator.answer import Estimate, Interval, Memory, MemoryEstimate
from service.estimator.memory.device import largest_fitting_bytes, reserved_bytes, reserved_shares, verdict_of
from service.estimator.names import STRICT
from service.estimator.question import Question
from service.estimator.resolve import resolve
from service.planner.steps import Steps
from service.units import BYTES, in_units, readable

End = Literal["value", "high"]
"""End of an interval that a limit is held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveLimits:
    """What the job may take at most while the open field grows or shrinks; it has to fit in any case."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    headroom_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the usable memory that stays free, beyond what the verdict `fits` asks for."""
    days: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """Wall time of the whole run."""
    cost_usd: Annotated[float, Ge(0), Lt(1e15)] | None = None
    """Cost of the whole run."""
    gpu_hours: Annotated[float, Gt(0), Lt(1e15)] | None = None
    """GPU-hours of the whole run."""
    total_flop: Annotated[float, Gt(0), Lt(1e35)] | None = None
    """Operations of the whole run (unknown `model`), instead of what time or money buys."""
    inference_per_token_flop: Annotated[float, Gt(0), Lt(1e20)] | None = None
    """Operations that one token may take when the trained model is used, 2 N (unknown `model`)."""
    inference_usd_per_million_tokens: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """What a million tokens may cost when the trained model is used (unknown `model`), on what `serving` says."""
    end: End = "value"
    """Whether days, cost and GPU-hours have to stay below their limits as predicted, or at their high end."""


RUN_LIMITS = ("days", "cost_usd", "gpu_hours")
"""Limits of the whole run, by the names that its totals have."""


SIZE_LIMITS = ("total_flop", "inference_per_token_flop", "inference_usd_per_million_tokens")
"""Limits that bound the size of a model alone."""


def limits_given(limits: SolveLimits) -> Mapping[str, float]:
    """The limits of the whole run that are given."""
    named = {name: getattr(limits, name) for name in RUN_LIMITS}
    return {name: limit for name, limit in named.items() if limit is not None}


MISSED: Mapping[str, str] = {
    "days": "deadline_missed",
    "cost_usd": "budget_exceeded",
    "gpu_hours": "gpu_hours_exceeded",
}
"""What a limit of the run that does not hold is called."""


def refused_because(problems: tuple[Problem, ...]) -> WhyNot:
    """The reason of a value that a rule refuses."""
    return WhyNot(
        code=problems[0].code,
        message="; ".join(problem.message for problem in problems),
        fix="; ".join(problem.fix for problem in problems),
    )


def memory_missing(device: Interval, usable_bytes: float, risk_fraction: float, limits: SolveLimits) -> WhyNot | None:
    """Why a job does not surely fit."""
    verdict = verdict_of(risk_fraction)
    usable = (1 - limits.headroom_fraction) * usable_bytes
    if verdict == "fits" and device.value <= usable:
        return None
    missing = max(0.0, device.value - most_device_bytes(device, usable_bytes, limits))
    amount = f"{in_units(device.value, BYTES)} of {in_units(usable_bytes, BYTES)}"
    words = {
        "out_of_memory": f"out of memory: {amount} on the fullest GPU",
        "at_risk": f"at risk: {amount} on the fullest GPU, out of memory with a probability of {risk_fraction:.2%}",
        "fits": f"{amount} on the fullest GPU leave less than the headroom of {limits.headroom_fraction:.1%}",
    }
    return WhyNot(
        code="headroom_missing" if verdict == "fits" else verdict,
        message=f"{words[verdict]}; {in_units(missing, BYTES)} are missing",
        missing_bytes=missing,
    )


def most_device_bytes(device: Interval, usable_bytes: float, limits: SolveLimits) -> float:
    """The largest device peak that will do, with a spread as wide as that of another one.

    Formula:
        min((1 - headroom) usable, the largest that has the verdict `fits`)

    Args:
        device: the device peak whose spread is taken
        usable_bytes: memory a job can use [byte]
        limits: what has to stay free

    Returns:
        bytes [byte]

    Source:
        definition

    >>> most_device_bytes(Interval(9.0, 10.0, 11.0, "analytic"), 10.0, SolveLimits(headroom_fraction=0.5))
    5.0
    """
    usable = (1 - limits.headroom_fraction) * usable_bytes
    return min(usable, largest_fitting_bytes(device, usable_bytes))


def limits_missed(predicted: Mapping[str, Interval | None], limits: SolveLimits) -> WhyNot | None:
    """Why a run takes more than it may."""
    over: dict[str, float] = {}
    words: list[str] = []
    for name, limit in limits_given(limits).items():
        interval = predicted[name]
        if interval is None:
            continue
        taken = interval.high if limits.end == "high" else interval.value
        if taken > limit:
            over[name] = taken - limit
            words.append(f"{name} {readable(taken)} exceeds {readable(limit)} by {readable(taken - limit)}")
    if not over:
        return None
    return WhyNot(
        code=MISSED[next(iter(over))],
        message="; ".join(words),
        over_days=over.get("days"),
        over_usd=over.get("cost_usd"),
        over_gpu_hours=over.get("gpu_hours"),
    )


@dataclass(frozen=True, slots=True)
class MemoryShortfall:
    """What keeps a job from fitting."""

    is_final: bool
    """Whether no larger value can do: live tensors are too many."""
    stages: frozenset[int] = frozenset()
    """Stages that hold too many bytes, of which the allocator would give some back if it had to."""


NONE = MemoryShortfall(is_final=False)


def memory_shortfall(question: Question, memory: Memory, limits: SolveLimits) -> MemoryShortfall:
    """What keeps a job from fitting that does not."""
    device = memory.device_peak_bytes
    beside = device.value - memory.reserved_peak_bytes.value
    room = most_device_bytes(device, memory.usable_bytes, limits) - beside
    share = reserved_shares(resolve(question).workload)[1]
    final = any(reserved_bytes(one.allocated_peak_bytes, 0.0, share, room) > room for one in memory.stages)
    stages = frozenset(one.stage for one in memory.stages if one.reserved_peak_bytes > room)
    return MemoryShortfall(is_final=final or not stages, stages=stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One value of the open field."""

    value: int
    """The value."""
    question: Question
    """The question with it."""
    refused: Refused | None
    """The rules that it breaks; None where it is legal."""
    why_not: WhyNot | None
    """Why it will not do; None where it does."""
    shortfall: MemoryShortfall = NONE
    """What keeps it from fitting, stage by stage."""

    @property
    def is_legal(self) -> bool:
        """Whether no rule refuses it."""
        return self.refused is None

    @property
    def will_do(self) -> bool:
        """Whether it is legal, fits and keeps every limit."""
        return self.why_not is None

    def may_do(self, short: frozenset[int]) -> bool:
        """Whether nothing final keeps it from doing, nor one of some stages."""
        return not self.shortfall.is_final and not self.shortfall.stages & short


class Attempts:
    """The values that were tried so far."""

    def __init__(self, put: Callable[[int], Question], limits: SolveLimits) -> None:
        self._put, self._limits = put, limits
        self._attempts: dict[int, Attempt] = {}

    @property
    def count(self) -> int:
        """How many values were tried."""
        return len(self._attempts)

    @property
    def legal(self) -> list[Attempt]:
        """Those that no rule refuses, in the order in which they were tried."""
        return [attempt for attempt in self._attempts.values() if attempt.is_legal]

    @property
    def broken_by_all(self) -> frozenset[str]:
        """Rules that every refused value breaks."""
        codes = [{problem.code for problem in refused.problems} for refused in self._refusals]
        return frozenset(set.intersection(*codes)) if codes else frozenset()

    @property
    def refusal(self) -> Refused | None:
        """What the first value that was refused is refused for; of it, what all are refused for, if anything."""
        first = next(iter(self._refusals), None)
        if first is None:
            return None
        shared = [problem for problem in first.problems if problem.code in self.broken_by_all]
        return Refused(*shared) if shared else first

    @property
    def _refusals(self) -> list[Refused]:
        return [attempt.refused for attempt in self._attempts.values() if attempt.refused is not None]

    def at(self, value: int) -> Steps[Attempt]:
        """Judge one value, once."""
        if value not in self._attempts:
            self._attempts[value] = _attempt_at(value, self._put(value), self._limits)
            yield None
        return self._attempts[value]


def _attempt_at(value: int, question: Question, limits: SolveLimits) -> Attempt:
    try:
        result = estimate(question) if limits_given(limits) else estimate_memory(question)
    except Refused as refused:
        why_not = refused_because(refused.problems)
        return Attempt(value=value, question=question, refused=refused, why_not=why_not)
    reason = reason_against(result, limits)
    if reason is None:
        return Attempt(value=value, question=question, refused=None, why_not=None)
    is_memory = reason.missing_bytes is not None
    shortfall = memory_shortfall(question, result.memory, limits) if is_memory else NONE
    return Attempt(value=value, question=question, refused=None, why_not=reason, shortfall=shortfall)


def reason_against(result: Estimate | MemoryEstimate, limits: SolveLimits) -> WhyNot | None:
    """Why an estimated job will not do."""
    memory = result.memory
    missing = memory_missing(memory.device_peak_bytes, memory.usable_bytes, memory.oom_probability_fraction, limits)
    if missing is not None or isinstance(result, MemoryEstimate) or result.totals is None:
        return missing
    totals = result.totals
    predicted = {"days": totals.days, "cost_usd": totals.cost_usd, "gpu_hours": totals.gpu_hours}
    return limits_missed(predicted, limits)
