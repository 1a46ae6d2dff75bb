"""Launch checks: created, read, listed and cancelled, with predictions and findings."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, get_args
from uuid import uuid4

from annotated_types import Interval, Len

from service.answers.estimates import Answer
from service.answers.launch_checks import LaunchCheckRow, ProbeAnswer, Reestimate, Where
from service.calibration.records import ProbeName, ProbeStatus, ProbeTask
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, NotFound, Problem, Refused
from service.estimator.names import STRICT, Name
from service.features.checks.requests import Problems
from service.features.estimates.answers import answer
from service.features.estimates.store import stored_answer
from service.features.launch_checks import store
from service.features.launch_checks.findings import (
    LAUNCH_CHECK,
    NOT_PLANNED,
    Kept,
    outlook_of,
    plan_as_json,
    plan_from_json,
)
from service.features.launch_checks.sizing import sized_question
from service.features.launch_checks.store import KeptCheck
from service.features.launch_checks.targets import target_of
from service.features.launch_checks.tasks import planned
from service.jobs.ends import cancel_job
from service.jobs.files import read_file, read_file_names
from service.jobs.jobs import Also, Job, NewJob, read_job
from service.store import Engine, read_workers, utc_text
from service.store.keys import Caller
from service.tabular.columns import Column, columns_of
from service.tabular.lists import Listed, Record, listed_in_parts
from service.validation.devices import driver_names
from service.validation.problems import not_an_object
from service.validation.question_parts import PARTS
from service.validation.questions import ReadQuestion, read_question
from service.validation.serialization import to_bytes, to_wire
from service.validation.specs import read_spec

QUESTION, ESTIMATE = "question", "estimate_id"
ALL_PROBES: tuple[ProbeName, ...] = get_args(ProbeName)
PROBES_OF_ONE: tuple[ProbeName, ...] = tuple(probe for probe in ALL_PROBES if probe != "collective")
"""What is measured for a job of one GPU, unless its asker names probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checking:
    """How a launch check is carried out."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    estimate_id: Name | None = None
    """Id of an estimate that a scenario, a check or a launch check stored, in the place of the question."""
    probes: Annotated[tuple[ProbeName, ...], Len(0, 8)] = ()
    """What to measure; where empty everything, but collective where the job has one GPU, which sends nothing."""
    time_budget_seconds: Annotated[float, Interval(ge=5, le=3600)] = 120.0
    """Time that all probes should keep within together."""
    on: Where | None = None
    """matching: on a worker with the cluster's GPU alone; any: on what there is, and then the verdict is at most
    caution; matching where a live worker has that GPU, else any, where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A launch check as it was asked for."""

    question: Mapping[str, Any]
    """The question as it was sent, or as the stored estimate has it."""
    asked: ReadQuestion
    """The same, understood."""
    estimate: Answer
    """What it is answered."""
    checking: Checking
    """How it is carried out."""

    @property
    def probes(self) -> tuple[ProbeName, ...]:
        """Probes in the order in which they run."""
        named = self.checking.probes or (ALL_PROBES if self.asked.question.cluster.gpus > 1 else PROBES_OF_ONE)
        return tuple(probe for probe in ALL_PROBES if probe in named)


def read_launch_check(body: Mapping[str, Any], catalogue: Catalogue, stored: Callable[[str], bytes]) -> Wanted:
    """The launch check that a request body asks for."""
    problems = Problems()
    said = {name: value for name, value in body.items() if name != QUESTION}
    checking = problems.read(lambda: read_spec(Checking, said, "", beside=(QUESTION,)))
    question = problems.read(lambda: _question(body.get(QUESTION), body.get(ESTIMATE), stored))
    understood = None if question is None else problems.read(lambda: _answered(question, catalogue))
    if checking is None or question is None or understood is None or problems.found:
        raise Refused(*problems.found[:MOST_PROBLEMS])
    asked, estimate = understood
    return Wanted(question=question, asked=asked, estimate=estimate, checking=checking)


def _question(question: object, estimate_id: object, stored: Callable[[str], bytes]) -> Mapping[str, Any]:
    """The question as it was sent, or the one that a stored estimate answers, every default filled."""
    if (question is None) == (estimate_id is None):
        message = "a launch check is about one question: the question itself, or the estimate_id of a stored one"
        raise Refused(
            Problem(field=QUESTION, code="one_of", message=message, fix="give either question or estimate_id")
        )
    if question is not None:
        if not isinstance(question, Mapping):
            raise Refused(not_an_object(QUESTION, PARTS))
        return question
    try:
        resolved = json.loads(stored(str(estimate_id)))["resolved"]
    except NotFound as missing:
        raise Refused(
            Problem(field=ESTIMATE, code="not_found", message=str(missing), fix="send the question itself")
        ) from None
    return {name: value for name, value in resolved.items() if name in PARTS and value is not None}


def _answered(question: Mapping[str, Any], catalogue: Catalogue) -> tuple[ReadQuestion, Answer]:
    try:
        asked = read_question(question, catalogue)
        return asked, answer(asked, catalogue)
    except Refused as refused:
        raise Refused(*(_placed(problem) for problem in refused.problems)) from None


def _placed(problem: Problem) -> Problem:
    return replace(problem, field=f"{QUESTION}.{problem.field}".rstrip("."))


PATH = "/v1/launch-checks"
CHECK_ID = re.compile(r"lch_[0-9a-f]{32}")
"""What ids look like; for anything else no database is asked."""

BETWEEN_SECONDS = 60.0
"""Time that a worker may take beside its probes: to start, to upload. Source: a choice."""

BEFORE_SWEEPS = 1
"""Priority of launch checks: somebody waits for one, and it takes minutes; a sweep may take a night."""

ALIVE_SECONDS = 120.0
"""A worker that was heard of so lately is taken to be there. Source: a choice; two leases."""

NONE_SUCH = f"there is no launch check of this id; GET {PATH} lists the ids"

TRACE = "trace.json.gz"
"""Name of the profile's file."""

_KEYED = {column.name: column for column in columns_of(LaunchCheckRow)}
COLUMNS: tuple[Column, ...] = (_KEYED.pop("id"), *_KEYED.values())
"""Columns of the list, the key first."""

_WITHOUT = {"succeeded": "none was made, or it was removed after TRAINCOST_KEEP_JOB_FILES_DAYS"}
"""Why a launch check of a status has no trace, where the status itself does not say that."""

NEWEST_FIRST = "-created_at"


def create_launch_check(
    engine: Engine,
    catalogue: Catalogue,
    catalogue_at: Callable[[str], Catalogue],
    body: Mapping[str, Any],
    caller: Caller,
    look_again: Callable[[], bool],
) -> Record:
    """Have a launch check made."""

    def stored(estimate_id: str) -> bytes:
        return stored_answer(engine, caller.whose, estimate_id, catalogue_at, look_again=look_again)

    wanted = read_launch_check(body, catalogue, stored)
    check, job, estimate = _made(engine, catalogue, wanted, caller.owner)
    store.create_launch_check(engine, check, estimate, job)
    return find_launch_check(engine, caller, check.id)


def _made(engine: Engine, catalogue: Catalogue, wanted: Wanted, owner: str) -> tuple[KeptCheck, NewJob, bytes]:
    found, question, checking = wanted.estimate, wanted.asked.question, wanted.checking
    workers = read_workers(engine, ALIVE_SECONDS, owner)
    target = target_of(checking.on, question.gpu, workers, catalogue)
    sized = sized_question(found.resolved, target, checking.time_budget_seconds)
    plan = planned(sized, target, wanted.probes, checking.time_budget_seconds)
    kept = Kept(
        question=found.resolved,
        before=outlook_of(found.resolved),
        expected=plan.expected,
        whole=plan.whole,
        assumptions=plan.assumptions,
        planned=tuple(task.probe for task in plan.tasks),
        is_matching=target.is_matching,
        device_names=driver_names(question.gpu.slug, catalogue),
        judges_memory=sized.judges_memory,
    )
    check_id = f"lch_{uuid4().hex}"
    check = KeptCheck(
        id=check_id,
        question=wanted.question,
        estimate_id=found.id,
        gpu=question.gpu.slug,
        gpus=question.cluster.gpus,
        probes=wanted.probes,
        time_budget_seconds=checking.time_budget_seconds,
        on_workers=target.on,
        plan=plan_as_json(kept),
    )
    job = NewJob(
        id=check_id,
        kind=LAUNCH_CHECK,
        payload={"tasks": [to_wire(asdict(task)) for task in plan.tasks]},
        timeout_seconds=BETWEEN_SECONDS + sum(task.timeout_seconds for task in plan.tasks),
        requires=target.requires(_most_ranks(plan.tasks)),
        priority=BEFORE_SWEEPS,
        owner=owner,
    )
    return check, job, to_bytes(found)


def _most_ranks(tasks: Sequence[ProbeTask]) -> int:
    return max((task.ranks for task in tasks), default=1)


def find_launch_check(engine: Engine, caller: Caller, check_id: str) -> Record:
    """One launch check as it is now."""
    check, job = _found(engine, caller, check_id)
    kept = plan_from_json(check.plan)
    found = check.found or _unfinished(check, job, kept)
    files = read_file_names(engine, check_id)
    return {
        "id": check.id,
        "status": job.status,
        "error": None if job.error is None else job.error.get("message"),
        "question": check.question,
        "estimate_id": check.estimate_id,
        "probes": found["probes"],
        "time_budget_seconds": check.time_budget_seconds,
        "on": check.on_workers,
        "comparable": found["comparable"],
        "worker": job.worker,
        "environment": found["environment"],
        "verdict": found["verdict"],
        "reasons": found["reasons"],
        "estimate": found["estimate"],
        "depths": found["depths"],
        "assumptions": kept.assumptions,
        "files": tuple(files),
        "created_at": utc_text(job.created_at),
        "started_at": None if job.started_at is None else utc_text(job.started_at),
        "finished_at": None if job.finished_at is None else utc_text(job.finished_at),
    }


def _found(engine: Engine, caller: Caller, check_id: str) -> tuple[KeptCheck, Job]:
    known = CHECK_ID.fullmatch(check_id) is not None
    check = store.read_launch_check(engine, check_id) if known else None
    job = None if check is None else read_job(engine, check_id)
    if check is None or job is None or not caller.reaches(job.owner):
        raise NotFound(NONE_SUCH)
    return check, job


def _unfinished(check: KeptCheck, job: Job, kept: Kept) -> Mapping[str, Any]:
    """What is known of a launch check before it ended: how far each probe is."""
    progress = job.progress if isinstance(job.progress, Mapping) else {}
    told = {one.get("probe"): one for one in progress.get("probes", ()) if isinstance(one, Mapping)}
    return {
        "probes": [_waiting(name, told.get(name, {}), kept) for name in check.probes],
        "comparable": None,
        "environment": None,
        "verdict": None,
        "reasons": (),
        "estimate": Reestimate(before=kept.before, after=None, assumptions=()),
        "depths": (),
    }


def _waiting(name: Any, told: Mapping[str, Any], kept: Kept) -> ProbeAnswer:
    """A probe that has told nothing final yet."""
    is_planned = name in kept.planned
    said: Any = told.get("status") if told.get("status") in get_args(ProbeStatus) else "queued"
    return ProbeAnswer(
        probe=name,
        status=said if is_planned else "skipped",
        reason=told.get("reason") if is_planned else NOT_PLANNED,
        done_fraction=float(told.get("done_fraction") or 0.0),
        seconds=None,
        measurements=(),
        summary=None,
    )


def cancel_launch_check(engine: Engine, caller: Caller, check_id: str, on_end: Also) -> Record:
    """Stop a launch check; one that has ended stays as it is."""
    _found(engine, caller, check_id)
    cancel_job(engine, check_id, on_end)
    return find_launch_check(engine, caller, check_id)


def launch_check_trace(engine: Engine, caller: Caller, check_id: str) -> bytes:
    """The trace of a launch check's profile, compressed."""
    check, job = _found(engine, caller, check_id)
    file = read_file(engine, check_id, TRACE)
    if file is None:
        why = _WITHOUT.get(job.status, f"it is {job.status}")
        why = why if "profile" in check.probes else "profile was not asked for"
        raise NotFound(f"this launch check has left no trace: {why}")
    return file.content


def listed_launch_checks(engine: Engine, caller: Caller) -> Listed:
    """The list of launch checks."""
    return listed_in_parts(COLUMNS, partial(store.read_launch_checks, engine, caller.whose), sort=NEWEST_FIRST)
