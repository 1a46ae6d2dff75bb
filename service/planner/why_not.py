"""Why will one value of the open field not do: which bytes, days or dollars are missing, or which rule is broken?"""

from collections.abc import Mapping

from service.answers.solutions import WhyNot
from service.errors import Problem
from service.estimator.answer import Interval
from service.estimator.memory.device import largest_fitting_bytes, verdict_of
from service.planner.solve_limits import SolveLimits, limits_given
from service.units import BYTES, readable, said

MISSED: Mapping[str, str] = {
    "days": "deadline_missed",
    "cost_usd": "budget_exceeded",
    "gpu_hours": "gpu_hours_exceeded",
}
"""What a limit of the run that does not hold is called."""


def refused_because(problems: tuple[Problem, ...]) -> WhyNot:
    """The reason of a value that a rule refuses.

    Args:
        problems: what the rules say, the first one first

    Returns:
        the first rule's code; the words of all
    """
    return WhyNot(
        code=problems[0].code,
        message="; ".join(problem.message for problem in problems),
        fix="; ".join(problem.fix for problem in problems),
    )


def memory_missing(device: Interval, usable_bytes: float, risk_fraction: float, limits: SolveLimits) -> WhyNot | None:
    """Why a job does not surely fit.

    Args:
        device: device peak of the fullest GPU
        usable_bytes: memory a job can use [byte]
        risk_fraction: probability that the peak exceeds it [1]
        limits: what has to stay free

    Returns:
        the reason with the missing bytes; None where it fits
    """
    verdict = verdict_of(risk_fraction)
    kept = (1 - limits.headroom_fraction) * usable_bytes
    if verdict == "fits" and device.value <= kept:
        return None
    missing = max(0.0, device.value - most_device_bytes(device, usable_bytes, limits))
    amount = f"{said(device.value, BYTES)} of {said(usable_bytes, BYTES)}"
    words = {
        "out_of_memory": f"out of memory: {amount} on the fullest GPU",
        "at_risk": f"at risk: {amount} on the fullest GPU, out of memory with a probability of {risk_fraction:.2%}",
        "fits": f"{amount} on the fullest GPU leave less than the headroom of {limits.headroom_fraction:.1%}",
    }
    return WhyNot(
        code="headroom_missing" if verdict == "fits" else verdict,
        message=f"{words[verdict]}; {said(missing, BYTES)} are missing",
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
    kept = (1 - limits.headroom_fraction) * usable_bytes
    return min(kept, largest_fitting_bytes(device, usable_bytes))


def limits_missed(predicted: Mapping[str, Interval | None], limits: SolveLimits) -> WhyNot | None:
    """Why a run takes more than it may.

    Args:
        predicted: days, cost and GPU-hours of the run, by the names of their limits
        limits: what it may take

    Returns:
        the reason; None where every limit is kept
    """
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
