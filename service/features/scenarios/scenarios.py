"""Scenarios: named questions, each stored with its answer, and the links that show one without a key."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_urlsafe
from typing import Any, TypeVar

from pydantic_core import to_json

from service.answers.estimates import Answer
from service.answers.shares import ListedShare, Share, ShareLinks, ShareList, ShareStatus
from service.api.access.credentials import PARAMETER, link_token
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, NotFound, Problem, Refused, Stale, refuse
from service.features.estimates.answers import answer
from service.features.estimates.store import SCENARIO_ID
from service.features.scenarios import schemas
from service.store import Engine
from service.store import scenarios as store
from service.store.engine import utc_text
from service.store.keys import Caller, KeyRing, ShareLink, create_share_link, read_share_links, revoke_share_link
from service.store.scenarios import SavedQuestion, Scenario
from service.tabular.lists import Column, IsCurrent, Listed, Record, as_record, columns_of, listed_in_parts
from service.validation.json_text import apply_merge_patch, checked_texts, normalized
from service.validation.problems import Collector, not_an_object, refused_at, unknown_field
from service.validation.questions import read_question
from service.validation.reading import read_spec, to_bytes


@dataclass(frozen=True, slots=True)
class ParsedScenario:
    label: schemas.ScenarioRequest
    question: Mapping[str, Any]
    found: Answer | None
    """Its answer; None if the question is unchanged, so that the stored answer applies."""


def read_request(body: Mapping[str, Any], catalogue: Catalogue, *, answered: object = None) -> ParsedScenario:
    problems = Collector()
    label = problems.read(_label, body)
    question = body.get(schemas.QUESTION)
    is_known = question is not None and to_json(question) == to_json(answered)
    found = None if is_known else problems.read(_answer, question, catalogue)
    if label is None or problems.problems or not isinstance(question, Mapping):
        raise Refused(*problems.problems)
    return ParsedScenario(label, question, found)


def _label(body: Mapping[str, Any]) -> schemas.ScenarioRequest:
    given = {name: value for name, value in body.items() if name != schemas.QUESTION}
    label = read_spec(schemas.ScenarioRequest, {name: normalized(value) for name, value in given.items()}, "")
    checked_texts(given)
    if not label.name.strip():
        message = "name holds nothing but spaces, so the scenario could not be found by it"
        raise Refused(Problem(field="name", code="empty", message=message, fix="give it a name"))
    return label


def _answer(question: object, catalogue: Catalogue) -> Answer:
    if question is None:
        message = "question is missing; a scenario keeps a question together with its answer"
        fix = "give what POST /v1/estimates takes"
        raise Refused(Problem(field=schemas.QUESTION, code="required", message=message, fix=fix))
    if not isinstance(question, Mapping):
        raise Refused(not_an_object(schemas.QUESTION, ["model", "recipe", "cluster"]))
    try:
        return answer(read_question(question, catalogue), catalogue)
    except Refused as refused:
        raise refused_at(schemas.QUESTION, refused) from None


Done = TypeVar("Done")

PATH = "/v1/scenarios"
RANDOM_BYTES = 16
"""Random bytes of an id: 128 bits cannot be guessed."""

COLUMNS: tuple[Column, ...] = tuple(sorted(columns_of(Scenario), key=lambda column: column.name != "id"))


@dataclass(frozen=True, slots=True)
class ScenarioChange:
    scenario_id: str
    is_current: IsCurrent
    """Whether the caller's revision is the current one."""
    caller: Caller


def listed_scenarios(engine: Engine, caller: Caller) -> Listed:
    return listed_in_parts(COLUMNS, partial(store.read_scenarios, engine, caller.visible_owner))


def find_scenario(engine: Engine, caller: Caller, scenario_id: str, revision: int | None = None) -> SavedQuestion:
    found = store.read_scenario(engine, scenario_id, revision) if SCENARIO_ID.fullmatch(scenario_id) else None
    if found is None or not caller.may_access(found.scenario.owner):
        which = "scenario of this id" if revision is None else "scenario of this id, or no such revision of it"
        raise NotFound(f"there is no {which}; GET /v1/scenarios lists the ids")
    return found


def scenario_record(saved: SavedQuestion) -> Record:
    scenario, question = saved
    record = as_record(COLUMNS, scenario)
    return {
        **{name: record[name] for name in schemas.HEAD},
        schemas.QUESTION: question,
        "summary": {name: record[name] for name in schemas.SUMMARY},
        "versions": {name: record[name] for name in schemas.VERSIONS},
        "links": {
            "self": f"{PATH}/{scenario.id}",
            "revision": f"{PATH}/{scenario.id}?revision={scenario.revision}",
            "estimate": f"/v1/estimates/{scenario.estimate_id}",
            "budget": f"{PATH}/{scenario.id}.xlsx",
            "list": PATH,
        },
    }


def create_scenario(engine: Engine, catalogue: Catalogue, caller: Caller, body: Mapping[str, Any]) -> SavedQuestion:
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
    read = partial(read_request, body)
    return _apply(engine, change, lambda saved: _rewritten(engine, saved, read(view(saved.scenario.owner))))


def patch_scenario(
    engine: Engine, view: Callable[[str], Catalogue], change: ScenarioChange, patch: Mapping[str, Any]
) -> SavedQuestion:
    """Patch a scenario in a new revision; an unchanged question keeps its answer."""
    names = [name for name in patch if name not in schemas.FIELDS][:MOST_PROBLEMS]
    unknown = [unknown_field("", name, schemas.FIELDS, "the scenario") for name in names]

    def rewrite(saved: SavedQuestion) -> SavedQuestion:
        refuse(unknown)
        scenario, question = saved
        body = apply_merge_patch({"name": scenario.name, "note": scenario.note, schemas.QUESTION: question}, patch)
        return _rewritten(engine, saved, read_request(body, view(scenario.owner), answered=question))

    return _apply(engine, change, rewrite)


def delete_scenario(engine: Engine, change: ScenarioChange) -> None:
    """Delete a scenario and its revisions; its answers remain readable."""
    _apply(engine, change, lambda saved: store.delete_scenario(engine, saved.scenario.id, saved.scenario.revision))


def _apply(engine: Engine, change: ScenarioChange, act: Callable[[SavedQuestion], Done]) -> Done:
    """Apply a change; where another writer is first, one from a named revision is stale, another applies to theirs."""
    while True:  # it ends: each retry means that another change was written
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
        **{name: getattr(found.versions, name) for name in schemas.VERSIONS},
    }


ID_BYTES = 9
MOST_LINKS = 1000
"""Most links of a scenario. Source: a choice; far more than readers, and few enough for one list."""
DEFAULT_DAYS = 30


def share_scenario(
    engine: Engine, keys: KeyRing, caller: Caller, scenario_id: str, body: Mapping[str, Any], address: str
) -> Share:
    now = datetime.now(UTC)
    end = _end(body, now).replace(microsecond=0)
    find_scenario(engine, caller, scenario_id)
    link = ShareLink(
        id=f"shr_{token_urlsafe(ID_BYTES)}",
        scenario_id=scenario_id,
        made_by=caller.id or None,
        created_at=now,
        expires_at=end,
    )
    if not create_share_link(engine, link, MOST_LINKS):
        message = f"the scenario has {MOST_LINKS} links that hold, the most that one may have"
        raise Refused(Problem(field="", code="too_many_shares", message=message, fix="revoke some of them"))
    token = link_token(keys.make_signing_secret(), link.id, scenario_id, int(end.timestamp()))
    forms = (f"{address}{PATH}/{scenario_id}{ending}?{PARAMETER}={token}" for ending in ("", ".xlsx", ".ods", ".html"))
    return Share(link.id, utc_text(end), ShareLinks(*forms))


def listed_shares(engine: Engine, caller: Caller, scenario_id: str) -> ShareList:
    """Links of a scenario; NotFound if the caller has no such scenario."""
    find_scenario(engine, caller, scenario_id)
    now = datetime.now(UTC)
    return ShareList(tuple(_listed_share(link, now) for link in read_share_links(engine, scenario_id)))


def revoke_share(engine: Engine, caller: Caller, scenario_id: str, share_id: str) -> None:
    """Revoke links; NotFound if the caller has no such scenario or the scenario no such links."""
    find_scenario(engine, caller, scenario_id)
    if not revoke_share_link(engine, share_id, datetime.now(UTC), scenario_id):
        raise NotFound(f"the scenario has no links of this id; GET {PATH}/{scenario_id}/shares lists the ids")


def share_records(engine: Engine, scenario_id: str | None = None) -> list[Record]:
    """Links of one or all scenarios, for the command."""
    now = datetime.now(UTC)
    links = read_share_links(engine, scenario_id)
    return [{"scenario": link.scenario_id, **asdict(_listed_share(link, now))} for link in links]


def _listed_share(link: ShareLink, moment: datetime) -> ListedShare:
    status: ShareStatus = "expired" if link.expires_at <= moment else "active"
    return ListedShare(
        id=link.id,
        status=status if link.revoked_at is None else "revoked",
        made_by=link.made_by,
        created_at=utc_text(link.created_at),
        expires_at=utc_text(link.expires_at),
        revoked_at=None if link.revoked_at is None else utc_text(link.revoked_at),
        last_used_at=None if link.last_used_at is None else utc_text(link.last_used_at),
    )


def _end(body: Mapping[str, Any], moment: datetime) -> datetime:
    requested = read_spec(schemas.ShareRequest, body, "")
    if requested.days is not None and requested.expires_at is not None:
        message = "days and expires_at both say when the link ends"
        raise Refused(Problem(field="expires_at", code="not_with_days", message=message, fix="give one of them"))
    if requested.expires_at is None:
        return moment + timedelta(days=requested.days or DEFAULT_DAYS)
    try:
        end = datetime.fromisoformat(requested.expires_at)
        is_near = moment < end <= moment + timedelta(days=schemas.MOST_DAYS)
    except (ValueError, TypeError, OverflowError):  # no moment, or one without a time zone
        message = "expires_at is no moment of RFC 3339 with its offset from UTC"
        fix = f"write it as {utc_text(moment + timedelta(days=DEFAULT_DAYS))}"
        raise Refused(Problem(field="expires_at", code="not_a_moment", message=message, fix=fix)) from None
    if not is_near:
        message = f"expires_at is over already, or more than {schemas.MOST_DAYS} days from now"
        raise Refused(Problem("expires_at", "out_of_range", message, "choose a moment in between"))
    return end
