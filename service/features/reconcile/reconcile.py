"""Reconciliation of finished jobs with their predictions, and the sending of sacct's output in parts."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, cast

from service.answers.diagnoses import EndState, Fault, LeftOut, Reason, ReconciledJob, Reconciliation
from service.calibration.records import DeviceKind, Environment
from service.catalogue import Catalogue
from service.catalogue.rows import GpuRow
from service.errors import Problem, Refused, TraincostError, UnknownRevision
from service.estimator import FORMULAS_VERSION
from service.estimator.answer import Interval, Verdict
from service.features.estimates.answers import answer
from service.features.estimates.store import ESTIMATE_ID
from service.features.measurements.measurements import fingerprint_of, id_scope, now_text
from service.features.reconcile import slurm
from service.store import Engine
from service.store.engine import answering, writing
from service.store.keys import Caller
from service.store.measurements import Measured, store_measurements_in
from service.store.requests import log_change_in
from service.store.scenarios import CheckedQuestion, read_answer, read_checked_question
from service.units import BYTES, in_units
from service.validation.json_text import STANDARD_INPUT
from service.validation.questions import read_question
from service.validation.reading import digest_of, to_bytes, to_wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    gpu_hours: Interval | None
    """GPU-hours of the whole run; None if its length is unknown."""
    verdict: Verdict
    gpus: int
    gpu: str
    """Their model, by its slug."""
    host_bytes: float
    formulas: str
    calibration: str | None
    is_asked_again: bool
    """Whether it was recomputed today, because formulas or facts of its time are gone."""


def predicted(
    engine: Engine,
    owner: str | None,
    estimate_id: str,
    now: Catalogue,
    catalogue_at: Callable[[str], Catalogue],
    should_retry: Callable[[], bool],
) -> Prediction | None:
    if ESTIMATE_ID.fullmatch(estimate_id) is None:
        return None
    stored = read_answer(engine, estimate_id, owner)
    if stored is not None:
        return _prediction(json.loads(stored), is_asked_again=False)
    checked = read_checked_question(engine, estimate_id, owner, should_retry)
    return None if checked is None else _recomputed(checked, now, catalogue_at)


def _prediction(answer: Mapping[str, Any], *, is_asked_again: bool) -> Prediction:
    return Prediction(
        gpu_hours=None if answer["totals"] is None else Interval(**answer["totals"]["gpu_hours"]),
        verdict=answer["verdict"],
        gpus=answer["resolved"]["cluster"]["gpus"],
        gpu=answer["resolved"]["gpu"]["slug"],
        host_bytes=answer["memory"]["host_bytes"],
        formulas=answer["versions"]["formulas"],
        calibration=answer["versions"]["calibration"],
        is_asked_again=is_asked_again,
    )


def _recomputed(
    checked: CheckedQuestion, now: Catalogue, catalogue_at: Callable[[str], Catalogue]
) -> Prediction | None:
    try:
        catalogue, is_of_then = catalogue_at(checked.catalogue), checked.formulas == FORMULAS_VERSION
    except UnknownRevision:
        catalogue, is_of_then = now, False
    try:
        found = answer(read_question(checked.question, catalogue), catalogue, advise=False)
    except Refused:
        return None
    return _prediction(to_wire(found), is_asked_again=not is_of_then)


MOST_FAULTS = 20
"""Most unreadable records in an answer. Source: a choice."""


def reconciliation_of(
    jobs: Sequence[ReconciledJob], others: Sequence[LeftOut], faults: Sequence[Fault], steps: int
) -> Reconciliation:
    ratios = [job.used_over_predicted_fraction for job in jobs if job.used_over_predicted_fraction is not None]
    merged: dict[str, LeftOut] = {}
    for one in others:
        before = merged.get(one.reason)
        count = one.jobs + (0 if before is None else before.jobs)
        merged[one.reason] = LeftOut(reason=one.reason, jobs=count, message=one.message, fix=one.fix)
    return Reconciliation(
        compared=len(ratios),
        inside=sum(job.is_inside is True for job in jobs),
        median_used_over_predicted_fraction=median(ratios) if ratios else None,
        verdicts_right=sum(job.is_verdict_right is True for job in jobs),
        verdicts_wrong=sum(job.is_verdict_right is False for job in jobs),
        out_of_memory=sum(job.state == "OUT_OF_MEMORY" for job in jobs),
        jobs=tuple(jobs),
        left_out=tuple(merged.values()),
        faults=tuple(faults[:MOST_FAULTS]),
        faults_left_off=max(len(faults) - MOST_FAULTS, 0),
        steps=steps,
    )


NO_LENGTH = "the estimate says no hours, because its question says no length of the run (recipe.training_tokens)"
NOT_COMPLETED = "it did not complete, so what it used is no whole run"
SLICES = "it ran on slices of GPUs, of which no prediction is made"
ATTEMPTS = "earlier attempts are missing: call sacct with --duplicates"
MAY_CONTINUE = "jobs of the same estimate ran out of time before, so it may have gone on from a checkpoint of theirs"
HOST_MEMORY = (
    "OUT_OF_MEMORY is Slurm's word for memory of the node, not of a GPU, whose shortage ends as FAILED; a rank was to "
    "take {host} of it"
)

CUT_SHORT: frozenset[str] = frozenset({"DEADLINE", "NODE_FAIL", "PREEMPTED", "TIMEOUT"})
"""End states after which another job continues from the checkpoint."""

ComparedJob = tuple[slurm.FinishedJob, Prediction, ReconciledJob]
"""A job, the prediction of its estimate, and the result of the comparison."""


def compare_job(job: slurm.FinishedJob, prediction: Prediction, cut_short: str | None) -> ComparedJob:
    state = cast(EndState, job.state)
    note = _not_compared(job, prediction, cut_short)
    hours = prediction.gpu_hours
    is_compared = note is None and hours is not None
    if state == "OUT_OF_MEMORY":
        note = HOST_MEMORY.format(host=in_units(prediction.host_bytes, BYTES))
    row = ReconciledJob(
        cluster=job.cluster,
        job_id=job.job_id,
        state=state,
        estimate_id=job.estimate_id,
        gpus=job.gpus,
        attempts=job.attempts,
        elapsed_seconds=job.elapsed_seconds,
        used_gpu_hours=job.gpu_hours,
        predicted_gpu_hours=hours,
        used_over_predicted_fraction=job.gpu_hours / hours.value if is_compared and hours is not None else None,
        is_inside=hours.low <= job.gpu_hours <= hours.high if is_compared and hours is not None else None,
        verdict=prediction.verdict,
        is_verdict_right=prediction.verdict != "out_of_memory" if state == "COMPLETED" else None,
        is_asked_again=prediction.is_asked_again,
        note=note,
    )
    return job, prediction, row


def _not_compared(job: slurm.FinishedJob, prediction: Prediction, cut_short: str | None) -> str | None:
    """Reason why hours cannot be compared; None if they can."""
    if job.state != "COMPLETED":
        return NOT_COMPLETED
    if prediction.gpu_hours is None:
        return NO_LENGTH
    if job.is_partition:
        return SLICES
    if job.gpus != prediction.gpus:
        return f"it ran on {job.gpus} GPUs, and the estimate is one of {prediction.gpus}"
    if not job.is_whole:
        return ATTEMPTS
    return MAY_CONTINUE if cut_short is not None and cut_short < job.started else None


SOURCE, PROBE, OPERATION, QUANTITY = "slurm", "run", "training", "gpu_hours"
"""Identity of runs in measurements: nothing is fitted to them, only their error is shown."""

KINDS: dict[str, DeviceKind] = {"NVIDIA": "cuda", "AMD": "rocm"}


def store_jobs(engine: Engine, caller: Caller, jobs: Iterable[ComparedJob], catalogue: Catalogue) -> None:
    """Store jobs with compared hours, whose GPU is in the catalogue, as measurements; existing ones stay unchanged."""
    stored_at = now_text()
    rows = [
        _measured(job, prediction, compared, caller.owner, catalogue.gpus[prediction.gpu], stored_at)
        for job, prediction, compared in jobs
        if compared.used_over_predicted_fraction is not None and prediction.gpu in catalogue.gpus
    ]
    if rows:
        with answering(), writing(engine) as connection:
            store_measurements_in(connection, rows)
            log_change_in(connection, *(f"measurements?run={run}" for run in sorted({row.run for row in rows})))


def _measured(
    job: slurm.FinishedJob, prediction: Prediction, compared: ReconciledJob, owner: str, gpu: GpuRow, stored_at: str
) -> Measured:
    """The measurement of a job; its id is of its owner, because other owners may store the same job."""
    used, hours = compared.used_gpu_hours, compared.predicted_gpu_hours
    kind = KINDS.get(gpu.vendor, "other")
    environment = asdict(
        Environment(kind=kind, device=gpu.name, devices=compared.gpus, memory_bytes=gpu.gpu.memory_bytes)
    )
    ran = compared.cluster, compared.job_id, job.started, compared.estimate_id
    own_id, apart = f"msr_{digest_of(to_bytes([SOURCE, *ran]))}", id_scope(owner)
    return Measured(
        id=f"msr_{digest_of(to_bytes([*apart, own_id]))}" if apart else own_id,
        measured_at=stored_at,
        source=SOURCE,
        run=f"{SOURCE}:{compared.cluster}",
        launch_check_id=None,
        probe=PROBE,
        operation=OPERATION,
        shape={"job_id": compared.job_id, "estimate_id": compared.estimate_id, "gpus": compared.gpus},
        quantity=QUANTITY,
        value=used,
        low=used,
        high=used,
        repeats=1,
        relative_error_fraction=None,
        predicted_value=None if hours is None else hours.value,
        kind=kind,
        device=gpu.name,
        gpu=gpu.slug,
        environment=environment,
        fingerprint=fingerprint_of(environment),
        formulas=prediction.formulas,
        calibration=prediction.calibration,
        quarantined_at=None,
        reason=None,
        owner=owner,
    )


MOST_ESTIMATES = 1_000
"""Most estimates of a request. Source: a choice; each estimate is recomputed in a millisecond."""

Predict = Callable[[str], Prediction | None]


def reconcile(
    engine: Engine,
    caller: Caller,
    found: slurm.SlurmRecords,
    now: Catalogue,
    catalogue_at: Callable[[str], Catalogue],
    should_retry: Callable[[], bool],
) -> Reconciliation:
    """Compare jobs with their predictions and store those with compared hours."""

    def predict(estimate_id: str) -> Prediction | None:
        return predicted(engine, caller.visible_owner, estimate_id, now, catalogue_at, should_retry)

    jobs, others = compare_jobs(found, predict)
    store_jobs(engine, caller, jobs, now)
    return reconciliation_of([compared for _, _, compared in jobs], others, found.faults, found.steps)


def compare_jobs(slurm_records: slurm.SlurmRecords, predict: Predict) -> tuple[list[ComparedJob], tuple[LeftOut, ...]]:
    jobs, others = slurm.finished_jobs(slurm_records.records)
    by_estimate = slurm.jobs_by_estimate(jobs)
    if len(by_estimate) > MOST_ESTIMATES:
        message = f"jobs of {len(by_estimate)} estimates are more than the {MOST_ESTIMATES} that one request takes"
        fix = "send fewer at once, as `traincost reconcile` does by itself"
        raise Refused(Problem(field="", code="too_many_jobs", message=message, fix=fix))
    compared_jobs: list[ComparedJob] = []
    unknown: list[Reason] = []
    for estimate_id, of_it in by_estimate.items():
        prediction = predict(estimate_id)
        if prediction is None:
            unknown += ["unknown_estimate"] * len(of_it)
            continue
        cut_short = min((job.started for job in of_it if job.state in CUT_SHORT), default=None)
        compared_jobs += [compare_job(job, prediction, cut_short) for job in of_it]
    return compared_jobs, (*others, *slurm.left_out(unknown))


A_WEEK_AGO = "now-7days"

LONGEST_SECONDS = 600.0
"""Timeout of sacct. Source: a choice; a slurmdbd of millions of jobs takes minutes."""


class NoAccounting(TraincostError):
    """The accounting cannot be read: no such file, no sacct, or one that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SacctQuery:
    since: str | None = None
    until: str | None = None
    cluster: str | None = None


def sacct_output(file: str | None, query: SacctQuery) -> str:
    if file is None:
        return _run_sacct(query)
    options = [f"--{field.name}" for field in fields(query) if getattr(query, field.name) is not None]
    if options:
        raise NoAccounting(f"{' and '.join(options)} choose what sacct is asked for, and a file holds what it answered")
    try:
        content = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or "its name is none of a file"
        raise NoAccounting(f"the file cannot be read: {cause}") from None
    return _decoded(content)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NoAccounting("the file is no text in UTF-8; save what sacct prints as it is") from None


def _run_sacct(query: SacctQuery) -> str:
    command = [*slurm.COMMAND.split(), f"--starttime={query.since or A_WEEK_AGO}"]
    command += [] if query.until is None else [f"--endtime={query.until}"]
    command += [] if query.cluster is None else [f"--clusters={query.cluster}"]
    environment = {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(  # noqa: S603 - a list of words, none of which a shell reads
            command, env=environment, capture_output=True, check=False, timeout=LONGEST_SECONDS
        )
    except OSError:
        message = "sacct is not found; run this where Slurm's commands are, or give what it printed as a file"
        raise NoAccounting(message) from None
    except subprocess.TimeoutExpired:
        raise NoAccounting(
            f"sacct did not answer in {LONGEST_SECONDS:.0f} s; ask for a shorter time: --since"
        ) from None
    if done.returncode:
        error_text = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise NoAccounting(f"sacct fails: {error_text}")
    return _decoded(done.stdout)


SENT_COLUMNS = ("JobID", "Cluster", "State", "ElapsedRaw", "AllocTRES", "Start", "Restarts", "Comment")
"""Columns sent to the service: no names of people, no paths, no commands."""

SLICE = "1g.1gb"
"""Placeholder for the size of a slice."""


def read_sacct(text: str) -> slurm.SlurmRecords:
    if not text.lstrip("\ufeff \r\n\t").startswith("{"):
        return slurm.read_parsable(text)
    try:
        document = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        message = "it begins as JSON and is none, so it was cut off or mixed with other output"
        fix = f"{slurm.AS_PRINTED}, without what it says on standard error"
        raise Refused(Problem(field="", code="not_json", message=message, fix=fix)) from None
    return slurm.read_document(document)


def sent_table(jobs: Sequence[slurm.FinishedJob]) -> str:
    """Jobs as a table for `read_sacct`, without fields that reconciliation does not need."""
    rows = [SENT_COLUMNS]
    for estimate_id, record in ((job.estimate_id, record) for job in jobs for record in job.records):
        model = f":{SLICE}" if record.is_partition else ""
        gpus = "" if record.gpus is None else f"gres/gpu{model}={record.gpus}"
        seconds = str(ceil(record.elapsed_seconds))
        cluster = "".join(letter for letter in record.cluster if letter.isalnum() or letter in "-_.")
        restarts = str(record.restarts)
        rows.append((record.job_id, cluster, record.state, seconds, gpus, record.started, restarts, estimate_id))
    return "".join(f"{'|'.join(row)}\n" for row in rows)


JOBS_AT_ONCE = 500
"""Most jobs of a request, except those of one estimate. Source: a choice; some 60 kB."""


def reconcile_output(ask: Callable[[str], Reconciliation], text: str) -> Reconciliation:
    found = read_sacct(text)
    jobs, others = slurm.finished_jobs(found.records)
    answers = [ask(sent_table(part)) for part in _parts(jobs)]
    return reconciliation_of(
        [job for answer in answers for job in answer.jobs],
        [*others, *(one for answer in answers for one in answer.left_out)],
        [*found.faults, *(fault for answer in answers for fault in answer.faults)],
        found.steps,
    )


def _parts(jobs: Sequence[slurm.FinishedJob]) -> Iterator[list[slurm.FinishedJob]]:
    """Split jobs into parts, keeping those of one estimate together."""
    part: list[slurm.FinishedJob] = []
    for of_it in slurm.jobs_by_estimate(jobs).values():
        if part and len(part) + len(of_it) > JOBS_AT_ONCE:
            yield part
            part = []
        part = [*part, *of_it]
    if part:
        yield part
