"""Create, read, list and cancel launch checks."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any
from uuid import uuid4

from service.answers.launch_checks import LaunchCheck, LaunchCheckRow, Reestimate
from service.catalogue import Catalogue
from service.errors import NotFound
from service.features.estimates.store import stored_answer
from service.features.launch_checks import findings, store
from service.features.launch_checks.schemas import read_launch_check
from service.features.launch_checks.store import StoredCheck
from service.features.launch_checks.targets import size_question, target_of
from service.features.launch_checks.tasks import plan_probes
from service.jobs.jobs import Job, NewJob, OnEnd, read_job
from service.jobs.leases import cancel_job, read_file, read_file_names
from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import Caller
from service.store.workers import read_workers
from service.tabular.lists import Column, Listed, Record, columns_of, listed_in_parts
from service.validation.devices import driver_names
from service.validation.reading import field_names, fields_of, to_bytes, to_wire

PATH = "/v1/launch-checks"
CHECK_ID = re.compile(r"lch_[0-9a-f]{32}")
"""Pattern of ids; another id is refused without a query."""

BETWEEN_SECONDS = 60.0
"""Time that a worker may take beside its probes, to start and to upload. Source: a choice."""
BEFORE_SWEEPS = 1
"""Priority of launch checks over sweeps: a caller waits minutes for a check, and a sweep may take a night."""
ALIVE_SECONDS = 120.0
"""Age of the last heartbeat up to which a worker counts as live. Source: a choice; two leases."""

UNKNOWN_CHECK = f"there is no launch check of this id; GET {PATH} lists the ids"

TRACE = "trace.json.gz"

COLUMNS: tuple[Column, ...] = tuple(sorted(columns_of(LaunchCheckRow), key=lambda column: column.name != "id"))

_MISSING_TRACE = {"succeeded": "none was made, or it was removed after TRAINCOST_KEEP_JOB_FILES_DAYS"}
"""Reasons for a missing trace by status, where the status alone does not explain it."""

NEWEST_FIRST = "-created_at"


def create_launch_check(
    engine: Engine,
    catalogue: Catalogue,
    catalogue_at: Callable[[str], Catalogue],
    body: Mapping[str, Any],
    caller: Caller,
    should_retry: Callable[[], bool],
) -> Record:
    def stored(estimate_id: str) -> bytes:
        return stored_answer(engine, caller.visible_owner, estimate_id, catalogue_at, should_retry=should_retry)

    parsed = read_launch_check(body, catalogue, stored)
    answer, question, request = parsed.estimate, parsed.parsed.question, parsed.request
    workers = read_workers(engine, ALIVE_SECONDS, caller.owner)
    target = target_of(request.on, question.gpu, workers, catalogue)
    sized = size_question(answer.resolved, target, request.time_budget_seconds)
    plan = plan_probes(sized, target, parsed.probes, request.time_budget_seconds)
    launch_plan = findings.LaunchPlan(
        question=answer.resolved,
        before=findings.outlook_of(answer.resolved),
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
        question=parsed.question,
        estimate_id=answer.id,
        gpu=question.gpu.slug,
        gpus=question.cluster.gpus,
        probes=parsed.probes,
        time_budget_seconds=request.time_budget_seconds,
        on_workers=target.on,
        plan=findings.plan_as_json(launch_plan),
    )
    job = NewJob(
        id=check_id,
        kind=findings.LAUNCH_CHECK,
        payload={"tasks": [to_wire(asdict(task)) for task in plan.tasks]},
        timeout_seconds=BETWEEN_SECONDS + sum(task.timeout_seconds for task in plan.tasks),
        requires=target.requires(max((task.ranks for task in plan.tasks), default=1)),
        priority=BEFORE_SWEEPS,
        owner=caller.owner,
    )
    store.create_launch_check(engine, check, to_bytes(answer), job)
    return find_launch_check(engine, caller, check_id)


def find_launch_check(engine: Engine, caller: Caller, check_id: str) -> Record:
    check, job = _stored_check(engine, caller, check_id)
    plan = findings.plan_from_json(check.plan)
    progress = job.progress if isinstance(job.progress, Mapping) else {}
    reported = {one.get("probe"): one for one in progress.get("probes", ()) if isinstance(one, Mapping)}
    unfinished = {
        "probes": [findings.probe_without_result(name, plan, reported.get(name, {})) for name in check.probes],
        "comparable": None,
        "environment": None,
        "verdict": None,
        "reasons": (),
        "estimate": Reestimate(before=plan.before, after=None, assumptions=()),
        "depths": (),
    }
    values = {
        **fields_of(check),
        **(check.found or unfinished),
        "status": job.status,
        "error": None if job.error is None else job.error.get("message"),
        "on": check.on_workers,
        "worker": job.worker,
        "assumptions": plan.assumptions,
        "files": tuple(read_file_names(engine, check_id)),
        "created_at": utc_text(job.created_at),
        "started_at": None if job.started_at is None else utc_text(job.started_at),
        "finished_at": None if job.finished_at is None else utc_text(job.finished_at),
    }
    return {name: values[name] for name in field_names(LaunchCheck)}


def _stored_check(engine: Engine, caller: Caller, check_id: str) -> tuple[StoredCheck, Job]:
    known = CHECK_ID.fullmatch(check_id) is not None
    check = store.read_launch_check(engine, check_id) if known else None
    job = None if check is None else read_job(engine, check_id)
    if check is None or job is None or not caller.may_access(job.owner):
        raise NotFound(UNKNOWN_CHECK)
    return check, job


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
        reason = _MISSING_TRACE.get(job.status, f"it is {job.status}")
        reason = reason if "profile" in check.probes else "profile was not asked for"
        raise NotFound(f"this launch check has left no trace: {reason}")
    return file.content


def listed_launch_checks(engine: Engine, caller: Caller) -> Listed:
    return listed_in_parts(COLUMNS, partial(store.read_launch_checks, engine, caller.visible_owner), sort=NEWEST_FIRST)
