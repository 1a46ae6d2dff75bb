"""Is the border of an open field where the search says? Every value near it is asked again, one by one, in full."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hypothesis import assume
from hypothesis import strategies as st

from service.errors import Refused
from service.estimator import Question, estimate
from service.estimator.question import Price
from service.planner.feasibility import RUN_LIMITS, UNKNOWNS, End, SolveLimits, Values
from service.planner.solve import Threshold, solve_steps
from service.planner.steps import outcome
from tests.estimator.legal_questions import questions, with_layout, with_recipe

FAR = 20
"""Values that are asked again at growing distances, for a border that is none."""


@dataclass(frozen=True)
class Case:
    """A question with an open field."""

    name: str
    question: Question
    limits: SolveLimits


def judged(case: Case, value: int) -> bool | None:
    """Whether a value will do by the whole answer; None where it is refused."""
    try:
        found = estimate(UNKNOWNS[case.name].put(case.question, value))
    except Refused:
        return None
    memory, limits, totals = found.memory, case.limits, found.totals
    room = memory.usable_bytes * (1 - limits.headroom_fraction)
    if found.verdict != "fits" or memory.device_peak_bytes.value > room:
        return False
    for name in RUN_LIMITS:
        limit, interval = getattr(limits, name), getattr(totals, name) if totals else None
        if limit is not None and interval is not None and getattr(interval, limits.end) > limit:
            return False
    return True


def wrong(case: Case, found: Threshold, near: int) -> list[str]:
    """What is wrong with a border, so many values beside it asked again; empty where nothing is."""
    unknown = UNKNOWNS[case.name]
    values = unknown.values(case.question, 1)
    sign = 1 if unknown.is_largest else -1
    told = []
    if found.found is not None and judged(case, found.found.value) is not True:
        told.append(f"{found.found.value} will not do")
    if found.beyond is not None and judged(case, found.beyond.value) is True:
        told.append(f"{found.beyond.value} will do")
    start = None if found.found is None else found.found.value
    end = None if found.beyond is None else found.beyond.value
    for value in _others(values, start, sign, near):
        verdict = judged(case, value)
        if verdict is True:
            told.append(f"{value} would have done, and the answer was {start}")
        between = start is not None and end is not None and min(start, end) < value < max(start, end)
        if between and verdict is not None:
            told.append(f"{value} lies between {start} and {end} and is legal")
    return told


def _others(values: Values, start: int | None, sign: int, near: int) -> Iterator[int]:
    """Values on the far side of the border, near ones and some at growing distances."""
    if start is None:
        yield from islice(values, near)
        place, ahead = 0, len(values)
    else:
        place = _place(values, start)
        yield from values[place + 1 : place + 1 + near] if sign > 0 else values[max(0, place - near) : place]
        ahead = len(values) - place if sign > 0 else place
    distance = near
    for _ in range(FAR):
        distance += distance // 2 + 1
        if distance < ahead:
            yield values[place + sign * distance]


def _place(values: Sequence[int], value: int) -> int:
    return values.index(value)


def asked(case: Case) -> Threshold | None:
    """The border, or None where no value is legal at all."""
    try:
        return outcome(solve_steps(case.question, case.name, case.limits))
    except Refused:
        return None


BOUNDS: dict[str, tuple[bool, ...]] = {
    name: (True,) if unknown.needs_limit else (False, True) if unknown.limits else (False,)
    for name, unknown in UNKNOWNS.items()
}
"""For each open field, whether it is bounded by memory alone, by a limit of its run too, or by either."""


@st.composite
def cases(draw: st.DrawFn, name: str, *, is_limited: bool) -> Case:
    """A question whose memory, and whose run where it is limited, is bounded somewhere near what it takes as it is."""
    question = draw(questions())
    own = estimate(question)
    factor = draw(st.floats(0.7, 12.0))
    gpu = replace(question.gpu, usable_bytes=own.memory.device_peak_bytes.value * factor)
    question = replace(question, gpu=gpu)
    limits = SolveLimits(headroom_fraction=draw(st.sampled_from((0.0, 0.1))))
    if draw(st.booleans()):
        question = with_recipe(question, global_batch=None, stages=())
    if name == "cluster.gpus":
        question = with_layout(question, data=None)
    if not is_limited:
        return Case(name, question, limits)
    question = with_recipe(question, training_tokens=1e12, stages=())
    question = replace(question, price=Price(usd_per_gpu_hour=2.5))
    limit, taken = draw(st.sampled_from(RUN_LIMITS)), _totals(question)
    assume(taken is not None)
    end: End = draw(st.sampled_from(("value", "high")))
    bound = {limit: (taken or {})[limit] * draw(st.floats(0.05, 20.0))}
    return Case(name, question, SolveLimits(headroom_fraction=limits.headroom_fraction, end=end, **bound))


def _totals(question: Question) -> dict[str, float] | None:
    try:
        found = estimate(question).totals
    except Refused:
        return None
    if found is None or found.cost_usd is None:
        return None
    return {"days": found.days.value, "gpu_hours": found.gpu_hours.value, "cost_usd": found.cost_usd.value}
