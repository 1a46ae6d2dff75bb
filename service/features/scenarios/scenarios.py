"""Scenarios: questions saved under a name, with the answer that was given.

An answer that is stored is never computed again: a scenario says under which versions it was answered, and a change of
its name or note alone keeps it.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from secrets import token_urlsafe
from typing import Annotated, Any, ClassVar, TypeVar

from annotated_types import Len, MaxLen
from pydantic_core import to_json

from service import store
from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, NotFound, Problem, Refused, Stale
from service.estimator.names import STRICT
from service.features.estimates.answers import answer
from service.store import Engine, Saved, Scenario, utc_text
from service.store.keys import Caller
from service.tabular.columns import Column, columns_of
from service.tabular.lists import IsCurrent, Listed, Record, as_record, listed_in_parts
from service.validation.merge_patch import merged
from service.validation.problems import not_an_object, unknown_field
from service.validation.questions import read_question
from service.validation.serialization import to_bytes
from service.validation.specs import field_names, read_spec
from service.validation.text import composed, plain

QUESTION = "question"
"""Field that holds what POST /v1/estimates takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a scenario is called."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: Annotated[str, Len(1, 120)]
    """What the team calls it, in one line."""
    note: Annotated[str, MaxLen(4000)] = ""
    """What to know about it."""


FIELDS = (*field_names(Label), QUESTION)
"""What a scenario is made of."""


@dataclass(frozen=True, slots=True)
class ScenarioRequest:
    """What a request body says of a scenario."""

    label: Label
    """Name and note, in Unicode's composed form."""
    question: Mapping[str, Any]
    """The question as it was sent."""
    found: Answer | None
    """Its answer; None where the question is as it was, so that the answer that is stored holds."""


def read_request(body: Mapping[str, Any], catalogue: Catalogue, *, answered: object = None) -> ScenarioRequest:
    """The scenario that a request body describes."""
    problems: list[Problem] = []
    label = _collected(lambda: _label(body), problems)
    question = body.get(QUESTION)
    is_known = question is not None and to_json(question) == to_json(answered)
    found = None if is_known else _collected(lambda: _answer(question, catalogue), problems)
    if label is None or problems or not isinstance(question, Mapping):
        raise Refused(*problems)
    return ScenarioRequest(label, question, found)


def _label(body: Mapping[str, Any]) -> Label:
    given = {name: value for name, value in body.items() if name != QUESTION}
    label = read_spec(Label, {name: composed(value) for name, value in given.items()}, "", beside=(QUESTION,))
    plain(given)
    if not label.name.strip():
        message = "name holds nothing but spaces, so nobody could find the scenario by it"
        raise Refused(Problem(field="name", code="empty", message=message, fix="give it a name"))
    return label


def _answer(question: object, catalogue: Catalogue) -> Answer:
    if question is None:
        message = "question is missing; a scenario keeps a question together with its answer"
        fix = "give what POST /v1/estimates takes"
        raise Refused(Problem(field=QUESTION, code="required", message=message, fix=fix))
    if not isinstance(question, Mapping):
        raise Refused(not_an_object(QUESTION, ["model", "recipe", "cluster"]))
    try:
        return answer(read_question(question, catalogue), catalogue)
    except Refused as refused:
        inside = [f"{QUESTION}.{problem.field}".rstrip(".") for problem in refused.problems]
        raise Refused(*map(_placed, refused.problems, inside)) from None


def _placed(problem: Problem, field: str) -> Problem:
    return replace(problem, field=field)


def _collected(part: Callable[[], Any], problems: list[Problem]) -> Any:
    try:
        return part()
    except Refused as refused:
        problems.extend(refused.problems)
        return None


Done = TypeVar("Done")

PATH = "/v1/scenarios"
RANDOM_BYTES = 16
"""Of an id: 128 bits, which nobody guesses."""

SCENARIO_ID = re.compile(r"scn_[A-Za-z0-9_-]{22}")
"""What ids look like; for anything else no database is asked."""

SUMMARY = (
    "gpu", "gpus", "verdict", "device_peak_bytes", "usable_bytes", "step_seconds", "gpu_hours", "cost_usd",
)  # fmt: skip
"""Columns that sum the answer up."""
VERSIONS = ("formulas", "catalogue", "calibration")
"""Columns that say what the answer rests on."""

_KEYED = {column.name: column for column in columns_of(Scenario)}
COLUMNS: tuple[Column, ...] = (_KEYED.pop("id"), *_KEYED.values())
"""Columns of the list, the key first."""


@dataclass(frozen=True, slots=True)
class ScenarioChange:
    """A change of one scenario: what of, and from which revision."""

    scenario_id: str
    """Its id."""
    is_current: IsCurrent
    """Whether the caller's revision is the one that holds."""
    caller: Caller
    """Who changes it."""


def listed_scenarios(engine: Engine, caller: Caller) -> Listed:
    """The list of scenarios."""
    return listed_in_parts(COLUMNS, partial(store.read_scenarios, engine, caller.whose))


def find_scenario(engine: Engine, caller: Caller, scenario_id: str, revision: int | None = None) -> Saved:
    """One scenario."""
    found = store.read_scenario(engine, scenario_id, revision) if SCENARIO_ID.fullmatch(scenario_id) else None
    if found is None or not caller.reaches(found.scenario.owner):
        which = "scenario of this id" if revision is None else "scenario of this id, or no such revision of it"
        raise NotFound(f"there is no {which}; GET /v1/scenarios lists the ids")
    return found


def shown(saved: Saved) -> Record:
    """A scenario as the resource that callers read."""
    scenario, question = saved
    record = as_record(COLUMNS, scenario)
    grouped = {*SUMMARY, *VERSIONS}
    return {
        **{name: value for name, value in record.items() if name not in grouped},
        QUESTION: question,
        "summary": {name: record[name] for name in SUMMARY},
        "versions": {name: record[name] for name in VERSIONS},
        "links": {
            "self": f"{PATH}/{scenario.id}",
            "revision": f"{PATH}/{scenario.id}?revision={scenario.revision}",
            "estimate": f"/v1/estimates/{scenario.estimate_id}",
            "budget": f"{PATH}/{scenario.id}.xlsx",
            "list": PATH,
        },
    }


def create_scenario(engine: Engine, catalogue: Catalogue, caller: Caller, body: Mapping[str, Any]) -> Saved:
    """Keep a question under a name."""
    wanted = read_request(body, catalogue)
    now = utc_text(datetime.now(UTC))
    said = {"name": wanted.label.name, "note": wanted.label.note, **_answered(wanted)}
    scenario = Scenario(
        id=f"scn_{token_urlsafe(RANDOM_BYTES)}", owner=caller.owner, revision=1, created_at=now, changed_at=now, **said
    )
    saved = Saved(scenario, wanted.question)
    store.create_scenario(engine, saved, to_bytes(wanted.found))
    return saved


def replace_scenario(
    engine: Engine, view: Callable[[str], Catalogue], change: ScenarioChange, body: Mapping[str, Any]
) -> Saved:
    """A new revision of a scenario, all of it said anew and its question answered anew."""

    def rewrite(saved: Saved) -> Saved:
        return _rewritten(engine, saved, read_request(body, view(saved.scenario.owner)))

    return _done(engine, change, rewrite)


def patch_scenario(
    engine: Engine, view: Callable[[str], Catalogue], change: ScenarioChange, patch: Mapping[str, Any]
) -> Saved:
    """A new revision of a scenario, of which only some is said anew; an unchanged question keeps its answer."""
    unknown = [unknown_field("", name, set(FIELDS), "the scenario") for name in patch if name not in FIELDS]

    def rewrite(saved: Saved) -> Saved:
        if unknown:
            raise Refused(*unknown[:MOST_PROBLEMS])
        scenario, question = saved
        body = merged({"name": scenario.name, "note": scenario.note, QUESTION: question}, patch)
        return _rewritten(engine, saved, read_request(body, view(scenario.owner), answered=question))

    return _done(engine, change, rewrite)


def delete_scenario(engine: Engine, change: ScenarioChange) -> None:
    """Remove a scenario and its revisions; what was answered can still be read."""
    _done(engine, change, lambda saved: store.delete_scenario(engine, saved.scenario.id, saved.scenario.revision))


def _done(engine: Engine, change: ScenarioChange, act: Callable[[Saved], Done]) -> Done:
    """What is done to the scenario as it is; where somebody else is first, to what that one made of it.

    Whoever names a version has lost then, and the second look says so. Whoever takes any version has not, and tries
    again: each time another one was written, so of many at once all are done.
    """
    while True:
        saved = find_scenario(engine, change.caller, change.scenario_id)
        if not change.is_current(shown(saved)):
            raise Stale(f"the scenario is at revision {saved.scenario.revision} now; read it again, and change that")
        with suppress(Stale):
            return act(saved)


def _rewritten(engine: Engine, saved: Saved, wanted: ScenarioRequest) -> Saved:
    scenario = replace(
        saved.scenario,
        revision=saved.scenario.revision + 1,
        changed_at=utc_text(datetime.now(UTC)),
        name=wanted.label.name,
        note=wanted.label.note,
        **_answered(wanted),
    )
    written = Saved(scenario, wanted.question)
    store.change_scenario(engine, written, None if wanted.found is None else to_bytes(wanted.found))
    return written


def _answered(wanted: ScenarioRequest) -> dict[str, Any]:
    """Fields of a scenario that sum its answer up; none where it keeps the answer it has."""
    found = wanted.found
    if found is None:
        return {}
    hours, cost = (None, None) if found.totals is None else (found.totals.gpu_hours, found.totals.cost_usd)
    return {
        "estimate_id": found.id,
        "gpu": found.resolved.gpu.slug,
        "gpus": found.resolved.cluster.gpus,
        "verdict": found.verdict,
        "device_peak_bytes": found.memory.device_peak_bytes.value,
        "usable_bytes": found.memory.usable_bytes,
        "step_seconds": found.step.step_seconds.value,
        "gpu_hours": None if hours is None else hours.value,
        "cost_usd": None if cost is None else cost.value,
        **{name: getattr(found.versions, name) for name in VERSIONS},
    }
