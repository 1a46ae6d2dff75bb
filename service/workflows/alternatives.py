"""What else might the job do that wants to start: one change of it, or other GPUs that are free?"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service.answers.checks import Alternative, CheckVerdict
from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.changes import advised
from service.estimator.memory_parts import Change
from service.estimator.question import Question
from service.estimator.software import software_of
from service.workflows.estimates import answer
from service.workflows.merge_patch import merged
from service.workflows.questions import Asked, read_question

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
    """What may run instead of a job that is not simply ok, best first.

    Args:
        search: where to look
        resolved: the question, every default filled
        changes: single changes that were tried already

    Returns:
        alternatives that are not denied, as many as there was time for
    """
    enough = (_patch_of(search.question, resolved, one) for one in changes if _is_enough(one))
    attempts = [*((_mended, patch) for patch in _pooled(search)), *((_tried, patch) for patch in enough)]
    found: list[Alternative] = []
    for attempt, patch in attempts[:MOST_ALTERNATIVES]:
        if not search.goes_on():
            break
        found += attempt(search, patch)
    return tuple(sorted(found, key=lambda one: (VERDICTS.index(one.verdict), one.time_limit_seconds or 0)))


def _answered(search: Search, patch: Mapping[str, Any]) -> tuple[Asked, Answer] | None:
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
