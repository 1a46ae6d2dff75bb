"""Thresholds and batches checked against single estimates of every value near them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil

from hypothesis import assume
from hypothesis import strategies as st

from service.errors import Refused
from service.estimator import Estimate, Question, estimate
from service.estimator.question import Price
from service.planner.feasibility import RUN_LIMITS, UNKNOWNS, End, SolveLimits, Values
from service.planner.solve import NEAR_FRACTION, PlannedBatch, Threshold, plan_batch, solve_steps
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


def does(case: Case, value: int) -> bool | None:
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
    if found.found is not None and does(case, found.found.value) is not True:
        told.append(f"{found.found.value} will not do")
    if found.beyond is not None and does(case, found.beyond.value) is True:
        told.append(f"{found.beyond.value} will do")
    start = None if found.found is None else found.found.value
    end = None if found.beyond is None else found.beyond.value
    for value in _others(values, start, sign, near):
        verdict = does(case, value)
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
        place = values.index(start)
        yield from values[place + 1 : place + 1 + near] if sign > 0 else values[max(0, place - near) : place]
        ahead = len(values) - place if sign > 0 else place
    distance = near
    for _ in range(FAR):
        distance += distance // 2 + 1
        if distance < ahead:
            yield values[place + sign * distance]


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


MOST_SHARE = 48
"""Sequences of one replica in a step, at most."""
BETWEEN = 40
"""Micro-batches between the plan's and the next one that are asked again."""


@dataclass(frozen=True)
class BatchCase:
    """A question, and the batch that is wanted of it."""

    question: Question
    wanted_tokens: int
    limits: SolveLimits


@dataclass(frozen=True)
class Made:
    """A batch that the estimator answers."""

    micro_batch: int
    miss_fraction: float
    fits: bool
    tokens_per_s_per_gpu: float


@st.composite
def batch_cases(draw: st.DrawFn) -> BatchCase:
    """A batch of a few sequences for each replica, not always a whole number of them, where memory ends nearby."""
    question = with_recipe(draw(questions()), stages=(), micro_batch=1)
    factor = draw(st.floats(0.9, 12.0))
    own = estimate(with_recipe(question, training_tokens=None)).memory.device_peak_bytes.value
    question = replace(question, gpu=replace(question.gpu, usable_bytes=own * factor))
    recipe, share = question.recipe, draw(st.integers(1, MOST_SHARE))
    if draw(st.booleans()):
        sequences = share * data_of(question) + draw(st.integers(0, 3))
        question = with_recipe(question, global_batch=sequences)
        wanted = sequences * recipe.sequence_length
    else:
        wanted = ceil(share * data_of(question) * recipe.sequence_length * draw(st.floats(0.6, 1.4)))
        question = with_recipe(question, global_batch=None, global_batch_tokens=wanted)
    limits = SolveLimits(headroom_fraction=draw(st.sampled_from((0.0, 0.1))))
    return BatchCase(question, wanted, limits)


def data_of(question: Question) -> int:
    """Data-parallel replicas."""
    layout = question.layout
    return layout.data or question.cluster.gpus // (layout.tensor * layout.context * layout.pipeline)


def asked_batch(case: BatchCase) -> PlannedBatch | None:
    """The plan; None where no batch is legal."""
    try:
        return outcome(plan_batch(case.question, case.limits))
    except Refused:
        return None


def wrong_batch(case: BatchCase, found: PlannedBatch | None) -> list[str]:
    """What is wrong with a plan; empty where nothing is."""
    every = [made for size in range(1, 2 * MOST_SHARE) if (made := nearest_batch(case, size)) is not None]
    fitting = [made for made in every if made.fits]
    if found is None:
        return [f"micro-batch {made.micro_batch} is legal" for made in every]
    if found.plan is None:
        beyond = found.threshold.beyond
        told = (
            []
            if beyond is not None and nearest_fits(case, beyond.question.recipe.micro_batch) is False
            else ["no reason"]
        )
        return told + [f"micro-batch {made.micro_batch} would have done" for made in fitting]
    plan = found.plan
    own = _made(case, plan.micro_batch, plan.accumulation)
    told = _miscounted(case, found) if own is not None else ["the plan is not legal"]
    if own is None or not own.fits:
        return [*told, "the plan does not fit"]
    enough = max(NEAR_FRACTION, min(made.miss_fraction for made in fitting))
    near = [made for made in fitting if made.miss_fraction <= enough]
    told += [] if own.miss_fraction <= enough else [f"the plan misses by {own.miss_fraction:.1%}"]
    told += [
        f"micro-batch {made.micro_batch} is faster"
        for made in near
        if made.tokens_per_s_per_gpu > own.tokens_per_s_per_gpu * (1 + 1e-9)
    ]
    return [*told, *_wrong_next(case, found)]


def _miscounted(case: BatchCase, found: PlannedBatch) -> list[str]:
    plan = found.plan
    if plan is None:
        return []
    product = plan.micro_batch * plan.accumulation * data_of(case.question)
    told = [] if product == plan.global_batch else ["its factors do not make the batch"]
    told += [] if plan.global_batch * plan.sequence_length == plan.global_batch_tokens else ["its tokens do not add up"]
    nearest = nearest_batch(case, plan.micro_batch)
    miss = abs(plan.global_batch_tokens - case.wanted_tokens) / case.wanted_tokens
    is_nearest = nearest is not None and miss <= nearest.miss_fraction * (1 + 1e-9)
    return told if is_nearest else [*told, "another accumulation comes nearer"]


def _wrong_next(case: BatchCase, found: PlannedBatch) -> list[str]:
    """The next micro-batch will not do; without a pipeline, whose bubble empties memory, all before it will."""
    if found.plan is None or found.threshold.beyond is None:
        return []
    own, beyond = found.plan.micro_batch, found.threshold.beyond.question.recipe.micro_batch
    told = [] if own < beyond and nearest_fits(case, beyond) is False else [f"{beyond} is not the next that will not"]
    if case.question.layout.pipeline == 1:
        between = range(own + 1, min(beyond, own + BETWEEN))
        told += [f"{size} will not do, and comes before {beyond}" for size in between if not _may_stand(case, size)]
    return told


def _may_stand(case: BatchCase, micro_batch: int) -> bool:
    return nearest_fits(case, micro_batch) is not False


def nearest_fits(case: BatchCase, micro_batch: int) -> bool | None:
    """Whether the batch of a micro-batch that is nearest to the wanted one fits; None where none is legal."""
    made = nearest_batch(case, micro_batch)
    return None if made is None else made.fits


def nearest_batch(case: BatchCase, micro_batch: int) -> Made | None:
    """The legal batch of a micro-batch that is nearest to the wanted one; None where none near it is."""
    legal = (_made(case, micro_batch, accumulation) for accumulation in _by_distance(case, micro_batch))
    return next((made for made in legal if made is not None), None)


def _by_distance(case: BatchCase, micro_batch: int) -> Iterator[int]:
    """Accumulations, the nearest to the wanted tokens first."""
    group = micro_batch * data_of(case.question) * case.question.recipe.sequence_length
    near = range(1, case.wanted_tokens // group + 20)
    yield from sorted(near, key=lambda accumulation: abs(accumulation * group - case.wanted_tokens))[:40]


def _made(case: BatchCase, micro_batch: int, accumulation: int) -> Made | None:
    batch = micro_batch * accumulation * data_of(case.question)
    changes = {"micro_batch": micro_batch, "global_batch": batch, "global_batch_tokens": None}
    try:
        found = estimate(with_recipe(case.question, **changes))
    except Refused:
        return None
    miss = abs(batch * case.question.recipe.sequence_length - case.wanted_tokens) / case.wanted_tokens
    return Made(micro_batch, miss, _fits(found, case.limits), found.step.tokens_per_s_per_gpu.value)


def _fits(found: Estimate, limits: SolveLimits) -> bool:
    room = found.memory.usable_bytes * (1 - limits.headroom_fraction)
    return found.verdict == "fits" and found.memory.device_peak_bytes.value <= room
