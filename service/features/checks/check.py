"""Admission check of one job: a verdict, and one line for its user."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from service.answers.checks import Alternative, Check, CheckVerdict
from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.advice.changes import advised
from service.estimator.answer import Change, Interval
from service.estimator.question import Question
from service.estimator.software.stacks import software_of
from service.features.checks.requests import FIELDS_BESIDE, CheckRequest, Limits, Problems, read_check
from service.features.estimates.answers import answer
from service.features.estimates.metrics import fits
from service.store import CheckedQuestion
from service.units import BYTES, SECONDS_PER_DAY, in_units, readable
from service.validation.merge_patch import merged
from service.validation.questions import ReadQuestion, read_question
from service.validation.reading import warnings_of
from service.validation.text import one_line

MOST_ALTERNATIVES = 8
"""Alternatives that a check names. Source: a choice; more are not read."""

VERDICTS: tuple[CheckVerdict, ...] = ("ok", "warn", "deny")
"""In the order in which alternatives are told."""


Judge = Callable[[Answer], tuple[CheckVerdict, int | None]]
"""The verdict of an answer, and the wall time to ask for."""


@dataclass(frozen=True, slots=True)
class Search:
    """Where alternatives are looked for."""

    question: Mapping[str, Any]
    """The body that was asked."""
    free_pool: tuple[Any, ...]
    """Clusters of free GPUs."""
    catalogue: Catalogue
    """The facts."""
    judge: Judge
    """Judges an alternative as the job itself."""
    goes_on: Callable[[], bool]
    """Whether there is time for another one."""


def alternatives_of(search: Search, resolved: Question, changes: tuple[Change, ...]) -> tuple[Alternative, ...]:
    """What may run instead of a job that is not simply ok, best first."""
    enough = (_patch_of(search.question, resolved, one) for one in changes if _is_enough(one))
    attempts = [*((_mended, patch) for patch in _pooled(search)), *((_tried, patch) for patch in enough)]
    found: list[Alternative] = []
    for attempt, patch in attempts[:MOST_ALTERNATIVES]:
        if not search.goes_on():
            break
        found += attempt(search, patch)
    return tuple(sorted(found, key=lambda one: (VERDICTS.index(one.verdict), one.time_limit_seconds or 0)))


def _answered(search: Search, patch: Mapping[str, Any]) -> tuple[ReadQuestion, Answer] | None:
    """The question as changed and its answer; None where it is refused."""
    try:
        asked = read_question(merged(search.question, patch), search.catalogue)
        return asked, answer(asked, search.catalogue, advise=False)
    except Refused:
        return None


def _tried(search: Search, patch: dict[str, Any]) -> Iterator[Alternative]:
    """What is changed, where it is not denied."""
    answered = _answered(search, patch)
    if answered is not None:
        yield from _told(search, patch, answered[1])


def _mended(search: Search, patch: dict[str, Any]) -> Iterator[Alternative]:
    """The job on other GPUs, and where it is denied there, with the first single change that is enough."""
    answered = _answered(search, patch)
    if answered is None:
        return
    asked, found = answered
    told = list(_told(search, patch, found))
    if not told:
        changes = advised(found.memory, asked.question, search.goes_on).changes
        there = merged(search.question, patch)
        enough = [merged(patch, _patch_of(there, found.resolved, one)) for one in changes if _is_enough(one)]
        told = [one for both in enough[:1] for one in _tried(search, both)]
    yield from told


def _told(search: Search, patch: dict[str, Any], found: Answer) -> Iterator[Alternative]:
    try:
        verdict, seconds = search.judge(found)
    except Refused:
        return
    if verdict != "deny":
        yield Alternative(
            patch=patch,
            verdict=verdict,
            device_peak_bytes=found.memory.device_peak_bytes,
            gpu_hours=None if found.totals is None else found.totals.gpu_hours,
            cost_usd=None if found.totals is None else found.totals.cost_usd,
            time_limit_seconds=seconds,
        )


def _is_enough(change: Change) -> bool:
    return change.verdict != "out_of_memory"


def _pooled(search: Search) -> Iterator[dict[str, Any]]:
    """The job on each of the free clusters; what the other one's size or name gave is left out."""
    layout = search.question.get("layout")
    names_data = isinstance(layout, Mapping) and "data" in layout
    asked = search.question.get("cluster")
    for cluster in search.free_pool:
        gone = {name: None for name in asked if name not in cluster} if isinstance(asked, Mapping) else {}
        place = {**gone, **cluster} if isinstance(cluster, Mapping) else cluster
        yield {"cluster": place, **({"layout": {"data": None}} if names_data else {})}


def _patch_of(question: Mapping[str, Any], resolved: Question, change: Change) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for path, value in [(change.field, change.value), *(one.split("=") for one in change.also)]:
        inner, holder = patch, question
        *outer, name = path.split(".")
        for step in outer:
            inner = inner.setdefault(step, {})
            held = holder.get(step) if isinstance(holder, Mapping) else None
            if step == "stack" and not isinstance(held, Mapping):
                inner["name"] = software_of(resolved.recipe).name
            holder = held if isinstance(held, Mapping) else {}
        inner[name] = int(value) if value.isdigit() else value
    return patch


SECONDS_PER_MINUTE = 60
"""Schedulers take time limits in whole minutes."""

SHARE_OF_CHANGES = 0.5
"""Share of the deadline in which single changes are tried; the rest works alternatives out. Source: a choice."""

INLINE_SECONDS = 0.005
"""Longest time in which a check that answers at once tries alternatives, whatever its deadline. Source: a choice; it is
the deadline of a check that gives none."""

LEFT_OUT = "the deadline may have come before every alternative was tried: a larger deadline_seconds may name more"

NO_TURN = "not every alternative was tried: the service had no process free for them within deadline_seconds; ask again"


Keep = Callable[[CheckedQuestion], None]
"""What is done with the question of a check, so that its estimate can be read again."""


def check(body: Mapping[str, Any], catalogue: Catalogue, keep: Keep = lambda _: None) -> Check:
    """Whether a job may start."""
    return _checked(body, catalogue, keep, lambda seconds: seconds)[0]


def begun_check(body: Mapping[str, Any], catalogue: Catalogue, keep: Keep) -> tuple[Check, float | None]:
    """Whether a job may start, with the alternatives that a few milliseconds suffice for."""
    found, deadline = _checked(body, catalogue, keep, lambda seconds: min(seconds, INLINE_SECONDS))
    end = deadline.started + deadline.wanted_seconds
    return found, end if deadline.has_cut and deadline.wanted_seconds > INLINE_SECONDS else None


def check_until(body: Mapping[str, Any], catalogue: Catalogue, end: float) -> Check:
    """The same check with all alternatives that the time suffices for."""
    return _checked(body, catalogue, lambda _: None, lambda _: end - time.monotonic())[0]


def without_turn(found: Check) -> Check:
    """A check that was begun, where nothing could try the alternatives that were left."""
    return replace(found, warnings=(*(one for one in found.warnings if one != LEFT_OUT), NO_TURN))


@dataclass(slots=True)
class _Deadline:
    """The time in which alternatives are tried."""

    wanted_seconds: float
    """What the caller gives."""
    seconds: float
    """What is taken of it."""
    started: float
    has_cut: bool = False
    """Whether it came before everything was tried."""

    def is_within(self, share: float) -> bool:
        """Whether less than a share of it is over."""
        return time.monotonic() - self.started < share * self.seconds

    def goes_on(self, share: float) -> bool:
        """The same, of a search that ends otherwise."""
        is_within = self.is_within(share)
        self.has_cut |= not is_within
        return is_within


def _checked(
    body: Mapping[str, Any], catalogue: Catalogue, keep: Keep, taken: Callable[[float], float]
) -> tuple[Check, _Deadline]:
    started = time.monotonic()
    problems = Problems()
    wanted = read_check(body, catalogue, problems)
    asked = problems.read(lambda: read_question(wanted.question, catalogue, beside=FIELDS_BESIDE))
    if asked is None or problems.found:
        raise Refused(*problems.found[:MOST_PROBLEMS])
    deadline = _Deadline(wanted.deadline_seconds, taken(wanted.deadline_seconds), started)
    found = _judged(wanted, asked, catalogue, deadline)
    rests_on = {"formulas": found.versions.formulas, "catalogue": found.versions.catalogue}
    keep(CheckedQuestion(estimate_id=found.id, question=wanted.question, **rests_on))
    return found, deadline


def _judged(wanted: CheckRequest, asked: ReadQuestion, catalogue: Catalogue, deadline: _Deadline) -> Check:
    found = answer(asked, catalogue, advise=False)
    exceeded = _exceeded(found, wanted.limits)
    found = replace(found, memory=advised(found.memory, asked.question, lambda: deadline.goes_on(SHARE_OF_CHANGES)))
    memory, totals = found.memory, found.totals
    verdict = _verdict(found, exceeded)
    alternatives: tuple[Alternative, ...] = ()
    if verdict != "ok":
        search = Search(
            wanted.question, wanted.free_pool, catalogue, _judge(wanted.limits), lambda: deadline.goes_on(1)
        )
        alternatives = alternatives_of(search, found.resolved, memory.changes)
    return Check(
        id=found.id,
        verdict=verdict,
        reason=_reason(found, exceeded),
        fits=fits(found.verdict),
        oom_probability_fraction=memory.oom_probability_fraction,
        device_peak_bytes=memory.device_peak_bytes,
        usable_bytes=memory.usable_bytes,
        gpu_hours=None if totals is None else totals.gpu_hours,
        cost_usd=None if totals is None else totals.cost_usd,
        time_limit_seconds=_time_limit_seconds(found),
        alternatives=alternatives,
        warnings=(
            *wanted.warnings,
            *warnings_of(found.sources, catalogue),
            *(() if verdict == "ok" or deadline.is_within(SHARE_OF_CHANGES) else (LEFT_OUT,)),
        ),
        sources=found.sources,
        versions=found.versions,
    )


def _judge(limits: Limits) -> Callable[[Answer], tuple[CheckVerdict, int | None]]:
    return lambda found: (_verdict(found, _exceeded(found, limits)), _time_limit_seconds(found))


def _verdict(found: Answer, exceeded: list[str]) -> CheckVerdict:
    if not fits(found.verdict):
        return "deny"
    return "ok" if found.verdict == "fits" and not exceeded else "warn"


def _time_limit_seconds(found: Answer) -> int | None:
    return None if found.totals is None else _whole_minutes(found.totals.days.high * SECONDS_PER_DAY)


def _exceeded(found: Answer, limits: Limits) -> list[str]:
    """Each limit that the run may exceed, in words."""
    totals = found.totals
    predicted = {} if totals is None else {"days": totals.days, "cost_usd": totals.cost_usd}
    given = {name: limit for name, limit in (("days", limits.days), ("cost_usd", limits.cost_usd)) if limit is not None}
    problems = [_not_judged(name, found) for name in given if predicted.get(name) is None]
    if problems:
        raise Refused(*problems)
    pairs = [(name, predicted[name], limit) for name, limit in given.items()]
    return [_compared(name, run, limit) for name, run, limit in pairs if run is not None and limit < run.high]


def _compared(name: str, predicted: Interval, limit: float) -> str:
    amount = f"{readable(predicted.value)} ({readable(predicted.low)} to {readable(predicted.high)})"
    if limit < predicted.low:
        return f"{name} {amount} exceeds the limit {readable(limit)} even at its low end"
    return f"{name} {amount} may exceed the limit {readable(limit)}"


def _not_judged(name: str, found: Answer) -> Problem:
    wanted = "recipe.training_tokens" if found.totals is None else "a price"
    message = f"limits.{name} cannot be judged: {name} of the run is not known without {wanted}"
    return Problem(field=f"limits.{name}", code="not_known", message=message, fix=f"give {wanted}, or leave it out")


def _memory_said(found: Answer) -> str:
    memory = found.memory
    peak, usable = in_units(memory.device_peak_bytes.value, BYTES), in_units(memory.usable_bytes, BYTES)
    amount = f"{peak} needed of {usable} on the fullest GPU"
    risk = f"{memory.oom_probability_fraction:.0%}"
    if found.verdict == "fits":
        return f"fits: {amount}"
    if found.verdict == "at_risk":
        return f"at risk: {amount}, out of memory with a probability of {risk}"
    advice = f"; {memory.suggestions[0]}" if memory.suggestions else ""
    return f"out of memory: {amount}, the most of it {memory.biggest_line}{advice}"


def _totals_said(found: Answer) -> list[str]:
    if found.totals is None:
        return []
    hours, days, cost = found.totals.gpu_hours, found.totals.days, found.totals.cost_usd
    words = f"{readable(hours.value)} GPU-hours, {readable(days.value)} days"
    return [words if cost is None else f"{words}, USD {readable(cost.value)}"]


def _reason(found: Answer, exceeded: list[str]) -> str:
    """The cause of the verdict first, then what the run takes."""
    memory = [_memory_said(found)]
    causes = [*exceeded, *memory] if found.verdict == "fits" else [*memory, *exceeded]
    return one_line("; ".join([*causes, *_totals_said(found)]))


def _whole_minutes(seconds: float) -> int:
    return ceil(seconds / SECONDS_PER_MINUTE) * SECONDS_PER_MINUTE
