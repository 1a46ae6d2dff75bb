"""Scenarios: named questions, each stored with its answer.

A stored answer is never computed again: a scenario has the versions of its answer, and a change of its name or note
alone keeps the answer.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from secrets import token_urlsafe
from typing import Any, TypeVar

from pydantic_core import to_json

from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, NotFound, Problem, Refused, Stale
from service.features.estimates.answers import answer
from service.features.scenarios.schemas import FIELDS, HEAD, QUESTION, SUMMARY, VERSIONS, ScenarioRequest
from service.store import Engine
from service.store import scenarios as store
from service.store.engine import utc_text
from service.store.keys import Caller
from service.store.scenarios import SavedQuestion, Scenario
from service.tabular.columns import Column, columns_of
from service.tabular.lists import IsCurrent, Listed, Record, as_record, listed_in_parts
from service.validation.json_text import apply_merge_patch
from service.validation.problems import Collector, not_an_object, unknown_field
from service.validation.questions import read_question
from service.validation.reading import read_spec
from service.validation.serialization import to_bytes
from service.validation.text import checked_texts, normalized


@dataclass(frozen=True, slots=True)
class ParsedScenario:
    """Parsed request for a scenario."""

    label: ScenarioRequest
    """Name and note, in Unicode's composed form."""
    question: Mapping[str, Any]
    """Unparsed question."""
    found: Answer | None
    """Its answer; None if the question is unchanged, so that the stored answer applies."""


def read_request(body: Mapping[str, Any], catalogue: Catalogue, *, answered: object = None) -> ParsedScenario:
    """Parse a request body."""
    problems = Collector()
    label = problems.read(_label, body)
    question = body.get(QUESTION)
    is_known = question is not None and to_json(question) == to_json(answered)
    found = None if is_known else problems.read(_answer, question, catalogue)
    if label is None or problems.problems or not isinstance(question, Mapping):
        raise Refused(*problems.problems)
    return ParsedScenario(label, question, found)


def _label(body: Mapping[str, Any]) -> ScenarioRequest:
    given = {name: value for name, value in body.items() if name != QUESTION}
    label = read_spec(ScenarioRequest, {name: normalized(value) for name, value in given.items()}, "")
    checked_texts(given)
    if not label.name.strip():
        message = "name holds nothing but spaces, so the scenario could not be found by it"
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
        inside = [replace(one, field=f"{QUESTION}.{one.field}".rstrip(".")) for one in refused.problems]
        raise Refused(*inside) from None


Done = TypeVar("Done")

PATH = "/v1/scenarios"
RANDOM_BYTES = 16
"""Random bytes of an id: 128 bits cannot be guessed."""

SCENARIO_ID = re.compile(r"scn_[A-Za-z0-9_-]{22}")
"""Pattern of ids; any other id is not found without a query."""

_KEYED = {column.name: column for column in columns_of(Scenario)}
COLUMNS: tuple[Column, ...] = (_KEYED.pop("id"), *_KEYED.values())
"""Columns of the list, the key first."""


@dataclass(frozen=True, slots=True)
class ScenarioChange:
    """A change of one scenario from one of its revisions."""

    scenario_id: str
    """Its id."""
    is_current: IsCurrent
    """Whether the caller's revision is the current one."""
    caller: Caller
    """Caller who changes it."""


def listed_scenarios(engine: Engine, caller: Caller) -> Listed:
    """The list of scenarios."""
    return listed_in_parts(COLUMNS, partial(store.read_scenarios, engine, caller.visible_owner))


def find_scenario(engine: Engine, caller: Caller, scenario_id: str, revision: int | None = None) -> SavedQuestion:
    """One scenario."""
    found = store.read_scenario(engine, scenario_id, revision) if SCENARIO_ID.fullmatch(scenario_id) else None
    if found is None or not caller.reaches(found.scenario.owner):
        which = "scenario of this id" if revision is None else "scenario of this id, or no such revision of it"
        raise NotFound(f"there is no {which}; GET /v1/scenarios lists the ids")
    return found


def scenario_record(saved: SavedQuestion) -> Record:
    """A scenario as a resource."""
    scenario, question = saved
    record = as_record(COLUMNS, scenario)
    return {
        **{name: record[name] for name in HEAD},
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


def create_scenario(engine: Engine, catalogue: Catalogue, caller: Caller, body: Mapping[str, Any]) -> SavedQuestion:
    """Create a scenario."""
    request = read_request(body, catalogue)
    now = utc_text(datetime.now(UTC))
    fields = {"name": request.label.name, "note": request.label.note, **_answered(request)}
    scenario = Scenario(
        id=f"scn_{token_urlsafe(RANDOM_BYTES)}",
        owner=caller.owner,
        revision=1,
        created_at=now,
        changed_at=now,
        **fields,
    )
    saved = SavedQuestion(scenario, request.question)
    store.create_scenario(engine, saved, to_bytes(request.found))
    return saved


def replace_scenario(
    engine: Engine, view: Callable[[str], Catalogue], change: ScenarioChange, body: Mapping[str, Any]
) -> SavedQuestion:
    """Replace a scenario by a new revision, with a new answer."""

    def rewrite(saved: SavedQuestion) -> SavedQuestion:
        return _rewritten(engine, saved, read_request(body, view(saved.scenario.owner)))

    return _apply(engine, change, rewrite)


def patch_scenario(
    engine: Engine, view: Callable[[str], Catalogue], change: ScenarioChange, patch: Mapping[str, Any]
) -> SavedQuestion:
    """Patch a scenario in a new revision; an unchanged question keeps its answer."""
    unknown = [unknown_field("", name, set(FIELDS), "the scenario") for name in patch if name not in FIELDS]

    def rewrite(saved: SavedQuestion) -> SavedQuestion:
        if unknown:
            raise Refused(*unknown[:MOST_PROBLEMS])
        scenario, question = saved
        body = apply_merge_patch({"name": scenario.name, "note": scenario.note, QUESTION: question}, patch)
        return _rewritten(engine, saved, read_request(body, view(scenario.owner), answered=question))

    return _apply(engine, change, rewrite)


def delete_scenario(engine: Engine, change: ScenarioChange) -> None:
    """Delete a scenario and its revisions; its answers remain readable."""
    _apply(engine, change, lambda saved: store.delete_scenario(engine, saved.scenario.id, saved.scenario.revision))


def _apply(engine: Engine, change: ScenarioChange, act: Callable[[SavedQuestion], Done]) -> Done:
    """Apply a change to the current scenario; if another writer is first, apply it to their revision.

    A change from a named revision is stale then. A change from any revision is tried again: each retry means that
    another one was written, so all concurrent changes finish.
    """
    while True:
        saved = find_scenario(engine, change.caller, change.scenario_id)
        if not change.is_current(scenario_record(saved)):
            raise Stale(f"the scenario is at revision {saved.scenario.revision} now; read it again, and change that")
        with suppress(Stale):
            return act(saved)


def _rewritten(engine: Engine, saved: SavedQuestion, request: ParsedScenario) -> SavedQuestion:
    scenario = replace(
        saved.scenario,
        revision=saved.scenario.revision + 1,
        changed_at=utc_text(datetime.now(UTC)),
        name=request.label.name,
        note=request.label.note,
        **_answered(request),
    )
    written = SavedQuestion(scenario, request.question)
    store.change_scenario(engine, written, None if request.found is None else to_bytes(request.found))
    return written


def _answered(request: ParsedScenario) -> dict[str, Any]:
    """Summary fields of a scenario; none if it keeps its answer."""
    found = request.found
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
