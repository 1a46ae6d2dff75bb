"""Create, read, list and cancel launch checks."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, get_args
from uuid import uuid4

from annotated_types import Interval, Len

from service.answers.estimates import Answer
from service.answers.launch_checks import LaunchCheckRow, ProbeAnswer, Reestimate, Where
from service.calibration.records import ProbeName, ProbeStatus
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, NotFound, Problem, Refused
from service.estimator.question import STRICT, Name
from service.features.checks.schemas import Problems
from service.features.estimates.answers import answer
from service.features.estimates.store import stored_answer
from service.features.launch_checks import store
from service.features.launch_checks.findings import (
    LAUNCH_CHECK,
    NOT_PLANNED,
    LaunchPlan,
    outlook_of,
    plan_as_json,
    plan_from_json,
)
from service.features.launch_checks.store import StoredCheck
from service.features.launch_checks.targets import size_question, target_of
from service.features.launch_checks.tasks import plan_probes
from service.jobs.ends import cancel_job
from service.jobs.jobs import Job, NewJob, OnEnd, read_job
from service.jobs.leases import read_file, read_file_names
from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import Caller
from service.store.workers import read_workers
from service.tabular.columns import Column, columns_of
from service.tabular.lists import Listed, Record, listed_in_parts
from service.validation.devices import driver_names
from service.validation.problems import not_an_object
from service.validation.question_parts import PARTS
from service.validation.questions import ParsedQuestion, read_question
from service.validation.serialization import to_bytes, to_wire
from service.validation.specs import read_spec

QUESTION, ESTIMATE = "question", "estimate_id"
ALL_PROBES: tuple[ProbeName, ...] = get_args(ProbeName)
PROBES_OF_ONE: tuple[ProbeName, ...] = tuple(probe for probe in ALL_PROBES if probe != "collective")
"""Default probes of a job with one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCheckOptions:
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
class LaunchCheckRequest:
    """Parsed request for a launch check."""

    question: Mapping[str, Any]
    """Question as sent, or from the stored estimate."""
    parsed: ParsedQuestion
    """The parsed question."""
    estimate: Answer
    """Its estimate."""
    options: LaunchCheckOptions
    """Options of the check."""

    @property
    def probes(self) -> tuple[ProbeName, ...]:
        """Probes in execution order."""
        named = self.options.probes or (ALL_PROBES if self.parsed.question.cluster.gpus > 1 else PROBES_OF_ONE)
        return tuple(probe for probe in ALL_PROBES if probe in named)


def read_launch_check(
    body: Mapping[str, Any], catalogue: Catalogue, stored: Callable[[str], bytes]
) -> LaunchCheckRequest:
    """Parse a request body."""
    problems = Problems()
    values = {name: value for name, value in body.items() if name != QUESTION}
    options = problems.read(lambda: read_spec(LaunchCheckOptions, values, "", beside=(QUESTION,)))
    question = problems.read(lambda: _question(body.get(QUESTION), body.get(ESTIMATE), stored))
    answered = None if question is None else problems.read(lambda: _answered(question, catalogue))
    if options is None or question is None or answered is None or problems.found:
        raise Refused(*problems.found[:MOST_PROBLEMS])
    parsed, estimate = answered
    return LaunchCheckRequest(question=question, parsed=parsed, estimate=estimate, options=options)


def _question(question: object, estimate_id: object, stored: Callable[[str], bytes]) -> Mapping[str, Any]:
    """Question as sent, or of the stored estimate with every default filled."""
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


def _answered(question: Mapping[str, Any], catalogue: Catalogue) -> tuple[ParsedQuestion, Answer]:
    try:
        parsed = read_question(question, catalogue)
        return parsed, answer(parsed, catalogue)
    except Refused as refused:
        raise Refused(*(_in_question(problem) for problem in refused.problems)) from None


def _in_question(problem: Problem) -> Problem:
    return replace(problem, field=f"{QUESTION}.{problem.field}".rstrip("."))


PATH = "/v1/launch-checks"
CHECK_ID = re.compile(r"lch_[0-9a-f]{32}")
"""Pattern of ids; any other id is not found without a query."""

BETWEEN_SECONDS = 60.0
"""Time that a worker may take beside its probes, to start and to upload. Source: a choice."""

BEFORE_SWEEPS = 1
"""Priority of launch checks: a caller waits for minutes; a sweep may take a night."""

ALIVE_SECONDS = 120.0
"""Age of the last heartbeat up to which a worker counts as live. Source: a choice; two leases."""

NONE_SUCH = f"there is no launch check of this id; GET {PATH} lists the ids"

TRACE = "trace.json.gz"
"""Name of the profile's file."""

_KEYED = {column.name: column for column in columns_of(LaunchCheckRow)}
COLUMNS: tuple[Column, ...] = (_KEYED.pop("id"), *_KEYED.values())
"""Columns of the list, the key first."""

_WITHOUT = {"succeeded": "none was made, or it was removed after TRAINCOST_KEEP_JOB_FILES_DAYS"}
"""Reasons for a missing trace by status, where the status alone does not explain it."""

NEWEST_FIRST = "-created_at"


def create_launch_check(
    engine: Engine,
    catalogue: Catalogue,
    catalogue_at: Callable[[str], Catalogue],
    body: Mapping[str, Any],
    caller: Caller,
    look_again: Callable[[], bool],
) -> Record:
    """Create a launch check."""

    def stored(estimate_id: str) -> bytes:
        return stored_answer(engine, caller.whose, estimate_id, catalogue_at, look_again=look_again)

    request = read_launch_check(body, catalogue, stored)
    check, job, estimate = _prepare(engine, catalogue, request, caller.owner)
    store.create_launch_check(engine, check, estimate, job)
    return find_launch_check(engine, caller, check.id)


def _prepare(
    engine: Engine, catalogue: Catalogue, request: LaunchCheckRequest, owner: str
) -> tuple[StoredCheck, NewJob, bytes]:
    answer, question, options = request.estimate, request.parsed.question, request.options
    workers = read_workers(engine, ALIVE_SECONDS, owner)
    target = target_of(options.on, question.gpu, workers, catalogue)
    sized = size_question(answer.resolved, target, options.time_budget_seconds)
    plan = plan_probes(sized, target, request.probes, options.time_budget_seconds)
    launch_plan = LaunchPlan(
        question=answer.resolved,
        before=outlook_of(answer.resolved),
        expected=plan.expected,
        whole=plan.whole,
        assumptions=plan.assumptions,
        planned=tuple(task.probe for task in plan.tasks),
        is_matching=target.is_matching,
        device_names=driver_names(question.gpu.slug, catalogue),
        judges_memory=sized.judges_memory,
    )
    check_id = f"lch_{uuid4().hex}"
    check = StoredCheck(
        id=check_id,
        question=request.question,
        estimate_id=answer.id,
        gpu=question.gpu.slug,
        gpus=question.cluster.gpus,
        probes=request.probes,
        time_budget_seconds=options.time_budget_seconds,
        on_workers=target.on,
        plan=plan_as_json(launch_plan),
    )
    job = NewJob(
        id=check_id,
        kind=LAUNCH_CHECK,
        payload={"tasks": [to_wire(asdict(task)) for task in plan.tasks]},
        timeout_seconds=BETWEEN_SECONDS + sum(task.timeout_seconds for task in plan.tasks),
        requires=target.requires(max((task.ranks for task in plan.tasks), default=1)),
        priority=BEFORE_SWEEPS,
        owner=owner,
    )
    return check, job, to_bytes(answer)


def find_launch_check(engine: Engine, caller: Caller, check_id: str) -> Record:
    """Current state of a launch check."""
    check, job = _stored_check(engine, caller, check_id)
    plan = plan_from_json(check.plan)
    findings = check.found or _unfinished(check, job, plan)
    files = read_file_names(engine, check_id)
    return {
        "id": check.id,
        "status": job.status,
        "error": None if job.error is None else job.error.get("message"),
        "question": check.question,
        "estimate_id": check.estimate_id,
        "probes": findings["probes"],
        "time_budget_seconds": check.time_budget_seconds,
        "on": check.on_workers,
        "comparable": findings["comparable"],
        "worker": job.worker,
        "environment": findings["environment"],
        "verdict": findings["verdict"],
        "reasons": findings["reasons"],
        "estimate": findings["estimate"],
        "depths": findings["depths"],
        "assumptions": plan.assumptions,
        "files": tuple(files),
        "created_at": utc_text(job.created_at),
        "started_at": None if job.started_at is None else utc_text(job.started_at),
        "finished_at": None if job.finished_at is None else utc_text(job.finished_at),
    }


def _stored_check(engine: Engine, caller: Caller, check_id: str) -> tuple[StoredCheck, Job]:
    known = CHECK_ID.fullmatch(check_id) is not None
    check = store.read_launch_check(engine, check_id) if known else None
    job = None if check is None else read_job(engine, check_id)
    if check is None or job is None or not caller.reaches(job.owner):
        raise NotFound(NONE_SUCH)
    return check, job


def _unfinished(check: StoredCheck, job: Job, plan: LaunchPlan) -> Mapping[str, Any]:
    """State of an unfinished launch check: progress of each probe."""
    progress = job.progress if isinstance(job.progress, Mapping) else {}
    reported = {one.get("probe"): one for one in progress.get("probes", ()) if isinstance(one, Mapping)}
    return {
        "probes": [_unfinished_probe(name, reported.get(name, {}), plan) for name in check.probes],
        "comparable": None,
        "environment": None,
        "verdict": None,
        "reasons": (),
        "estimate": Reestimate(before=plan.before, after=None, assumptions=()),
        "depths": (),
    }


def _unfinished_probe(name: Any, reported: Mapping[str, Any], plan: LaunchPlan) -> ProbeAnswer:
    """Answer for a probe without a final result."""
    is_planned = name in plan.planned
    status: Any = reported.get("status") if reported.get("status") in get_args(ProbeStatus) else "queued"
    return ProbeAnswer(
        probe=name,
        status=status if is_planned else "skipped",
        reason=reported.get("reason") if is_planned else NOT_PLANNED,
        done_fraction=float(reported.get("done_fraction") or 0.0),
        seconds=None,
        measurements=(),
        summary=None,
    )


def cancel_launch_check(engine: Engine, caller: Caller, check_id: str, on_end: OnEnd) -> Record:
    """Stop a launch check; one that has ended stays as it is."""
    _stored_check(engine, caller, check_id)
    cancel_job(engine, check_id, on_end)
    return find_launch_check(engine, caller, check_id)


def launch_check_trace(engine: Engine, caller: Caller, check_id: str) -> bytes:
    """Compressed trace of the profile probe."""
    check, job = _stored_check(engine, caller, check_id)
    file = read_file(engine, check_id, TRACE)
    if file is None:
        why = _WITHOUT.get(job.status, f"it is {job.status}")
        why = why if "profile" in check.probes else "profile was not asked for"
        raise NotFound(f"this launch check has left no trace: {why}")
    return file.content


def listed_launch_checks(engine: Engine, caller: Caller) -> Listed:
    """The list of launch checks."""
    return listed_in_parts(COLUMNS, partial(store.read_launch_checks, engine, caller.whose), sort=NEWEST_FIRST)
