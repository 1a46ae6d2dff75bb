"""Admission checks of a job: its verdict, the reason, and what may run instead."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from service.answers.checks import Alternative, Check, CheckVerdict
from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.advice import with_advice
from service.estimator.answer import Change
from service.estimator.question import Question
from service.estimator.software.stacks import software_of
from service.features.checks import schemas
from service.features.estimates.answers import answer
from service.features.estimates.metrics import fits
from service.store.scenarios import CheckedQuestion
from service.units import BYTES, SECONDS_PER_DAY, in_units, readable
from service.validation.json_text import apply_merge_patch, parse_object, single_line
from service.validation.questions import read_question
from service.validation.reading import field_names, warnings_of

MOST_ALTERNATIVES = 8
"""Most alternatives of a check. Source: a choice; users read no more."""

VERDICTS: tuple[CheckVerdict, ...] = ("ok", "warn")
"""Verdicts of alternatives, best first."""

OVER = "out_of_memory"
"""Verdict of an estimate that needs more memory than there is."""

HasTime = Callable[[], bool]
"""Whether time is left for another alternative."""


def _alternatives(
    request: schemas.ParsedCheck,
    catalogue: Catalogue,
    has_time: HasTime,
    resolved: Question,
    changes: tuple[Change, ...],
) -> tuple[Alternative, ...]:
    attempts = [(patch, True) for patch in _free_cluster_patches(request)]
    attempts += [(_patch_of(request.question, resolved, one), False) for one in changes if one.verdict != OVER]
    found: list[Alternative] = []
    for patch, is_changed_too in attempts[:MOST_ALTERNATIVES]:
        if not has_time():
            break
        alternative = _alternative(request, catalogue, patch, has_time if is_changed_too else None)
        found += [] if alternative is None else [alternative]
    return tuple(sorted(found, key=lambda one: (VERDICTS.index(one.verdict), one.time_limit_seconds or 0)))


def _alternative(
    request: schemas.ParsedCheck, catalogue: Catalogue, patch: dict[str, Any], has_time: HasTime | None = None
) -> Alternative | None:
    """The job with a patch; None where it is refused, or denied even with the first single change that suffices."""
    question = apply_merge_patch(request.question, patch)
    try:
        parsed = read_question(question, catalogue)
        found = answer(parsed, catalogue, advise=False)
        verdict = _verdict(found, _exceeded(found, request.limits))
    except Refused:
        return None
    if verdict != "deny":
        peak = found.memory.device_peak_bytes
        return Alternative(patch=patch, verdict=verdict, device_peak_bytes=peak, **_totals(found))
    changes = () if has_time is None else with_advice(found.memory, parsed.question, has_time).changes
    enough = next((_patch_of(question, found.resolved, one) for one in changes if one.verdict != OVER), None)
    return None if enough is None else _alternative(request, catalogue, apply_merge_patch(patch, enough))


def _free_cluster_patches(request: schemas.ParsedCheck) -> Iterator[dict[str, Any]]:
    """Patches to each free cluster, without the size or name of the former one."""
    layout = request.question.get("layout")
    beside = {"layout": {"data": None}} if isinstance(layout, Mapping) and "data" in layout else {}
    former = request.question.get("cluster")
    for cluster in request.free_pool:
        if isinstance(cluster, Mapping) and isinstance(former, Mapping):
            yield {"cluster": {**{name: None for name in former if name not in cluster}, **cluster}, **beside}
        else:
            yield {"cluster": cluster, **beside}


def _patch_of(question: Mapping[str, Any], resolved: Question, change: Change) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for path, value in [(change.field, change.value), *(one.split("=") for one in change.also)]:
        inner, holder = patch, question
        *outer, name = path.split(".")
        for step in outer:
            inner = inner.setdefault(step, {})
            inner_fields = holder.get(step) if isinstance(holder, Mapping) else None
            if step == "stack" and not isinstance(inner_fields, Mapping):
                inner["name"] = software_of(resolved.recipe).name
            holder = inner_fields if isinstance(inner_fields, Mapping) else {}
        inner[name] = int(value) if value.isdigit() else value
    return patch


SHARE_OF_CHANGES = 0.5
"""Share of the deadline for single changes; the rest is for alternatives. Source: a choice."""
INLINE_SECONDS = 0.005
"""Longest search for alternatives in the API process. Source: a choice; the default deadline of a check."""

LEFT_OUT = "the deadline may have come before every alternative was tried: a larger deadline_seconds may name more"

NO_TURN = "not every alternative was tried: the service had no process free for them within deadline_seconds; ask again"

StoreQuestion = Callable[[CheckedQuestion], None]

Evaluator = Callable[[Mapping[str, Any], Catalogue, StoreQuestion], Any]


def check(body: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion = lambda _: None) -> Check:
    """Whether a job may start."""
    return _checked(body, catalogue, keep, lambda seconds: seconds)[0]


def quick_check(body: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion) -> tuple[Check, float | None]:
    """Check a job, with the alternatives found within a few milliseconds."""
    found, deadline = _checked(body, catalogue, keep, lambda seconds: min(seconds, INLINE_SECONDS))
    end = deadline.started + deadline.given_seconds
    return found, end if deadline.was_cut and deadline.given_seconds > INLINE_SECONDS else None


def check_until(body: Mapping[str, Any], catalogue: Catalogue, end: float) -> Check:
    """Check a job with all alternatives found until a moment."""
    return _checked(body, catalogue, lambda _: None, lambda _: end - time.monotonic())[0]


def check_with_questions(
    evaluate: Evaluator, content: bytes, catalogue: Catalogue
) -> tuple[Any, list[CheckedQuestion]]:
    """Evaluate the job of a body, in any process; its questions are stored by the API process."""
    questions: list[CheckedQuestion] = []
    return evaluate(parse_object(content), catalogue, questions.append), questions


@dataclass(slots=True)
class _Deadline:
    given_seconds: float
    seconds: float
    started: float
    was_cut: bool = False

    def is_within(self, share: float) -> bool:
        """Whether less than a share of it has passed."""
        return time.monotonic() - self.started < share * self.seconds

    def has_time(self, share: float) -> bool:
        """Like `is_within`, and record whether the search was cut."""
        is_within = self.is_within(share)
        self.was_cut |= not is_within
        return is_within


def _checked(
    body: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion, taken: Callable[[float], float]
) -> tuple[Check, _Deadline]:
    started = time.monotonic()
    request = schemas.read_check(body, catalogue)
    deadline = _Deadline(request.deadline_seconds, taken(request.deadline_seconds), started)
    found = _check(request, catalogue, deadline)
    rests_on = {"formulas": found.versions.formulas, "catalogue": found.versions.catalogue}
    keep(CheckedQuestion(estimate_id=found.id, question=request.question, **rests_on))
    return found, deadline


def _check(request: schemas.ParsedCheck, catalogue: Catalogue, deadline: _Deadline) -> Check:
    found = answer(request.parsed, catalogue, advise=False)
    exceeded = _exceeded(found, request.limits)
    found = replace(
        found, memory=with_advice(found.memory, request.parsed.question, lambda: deadline.has_time(SHARE_OF_CHANGES))
    )
    memory = found.memory
    verdict, reason = _verdict(found, exceeded), _reason(found, exceeded)
    if request.not_understood is not None:
        verdict, reason = "unknown", request.not_understood
    alternatives: tuple[Alternative, ...] = ()
    if verdict in {"warn", "deny"}:
        alternatives = _alternatives(request, catalogue, lambda: deadline.has_time(1), found.resolved, memory.changes)
    return Check(
        id=found.id,
        verdict=verdict,
        reason=reason,
        fits=verdict != "deny",
        oom_probability_fraction=memory.oom_probability_fraction,
        device_peak_bytes=memory.device_peak_bytes,
        usable_bytes=memory.usable_bytes,
        **_totals(found),
        alternatives=alternatives,
        warnings=(
            *request.warnings,
            *warnings_of(found.sources, catalogue),
            *(() if verdict in {"ok", "unknown"} or deadline.is_within(SHARE_OF_CHANGES) else (LEFT_OUT,)),
        ),
        assumptions=request.assumptions,
        sources=found.sources,
        versions=found.versions,
    )


def _verdict(found: Answer, exceeded: list[str]) -> CheckVerdict:
    if not fits(found.verdict):
        return "deny"
    return "ok" if found.verdict == "fits" and not exceeded else "warn"


def _totals(found: Answer) -> dict[str, Any]:
    """Totals of the run, and the wall time to request, in whole minutes as schedulers take it."""
    totals = found.totals
    if totals is None:
        return {"gpu_hours": None, "cost_usd": None, "time_limit_seconds": None}
    seconds = 60 * ceil(totals.days.high * SECONDS_PER_DAY / 60)
    return {"gpu_hours": totals.gpu_hours, "cost_usd": totals.cost_usd, "time_limit_seconds": seconds}


def _exceeded(found: Answer, limits: schemas.Limits) -> list[str]:
    """Limits that the run may exceed, and those that cannot be judged, which it may exceed too."""
    exceeded: list[str] = []
    for name in field_names(schemas.Limits):
        limit, predicted = getattr(limits, name), getattr(found.totals, name, None)
        if limit is None:
            continue
        if predicted is None:
            required = "recipe.training_tokens" if found.totals is None else "a price"
            exceeded.append(f"limits.{name} cannot be judged without {required}")
        elif limit < predicted.high:
            amount = f"{readable(predicted.value)} ({readable(predicted.low)} to {readable(predicted.high)})"
            end = "exceeds the limit {} even at its low end" if limit < predicted.low else "may exceed the limit {}"
            exceeded.append(f"{name} {amount} {end.format(readable(limit))}")
    return exceeded


def _memory_text(found: Answer) -> str:
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


def _reason(found: Answer, exceeded: list[str]) -> str:
    memory, totals = [_memory_text(found)], found.totals
    causes = [*exceeded, *memory] if found.verdict == "fits" else [*memory, *exceeded]
    if totals is not None:
        amounts = f"{readable(totals.gpu_hours.value)} GPU-hours, {readable(totals.days.value)} days"
        causes.append(amounts if totals.cost_usd is None else f"{amounts}, USD {readable(totals.cost_usd.value)}")
    return single_line("; ".join(causes))
