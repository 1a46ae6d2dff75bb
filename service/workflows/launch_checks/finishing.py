"""What did a launch check find? Computed once, when its job ends, and kept in the transaction that ends it."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from pydantic import ValidationError

from service.answers.launch_checks import LaunchVerdict, ProbeAnswer, Reason, Reestimate
from service.calibration.observed import Observed
from service.calibration.physics import without_impossible
from service.calibration.records import Environment, ProbeRecord
from service.errors import Problem, Refused
from service.estimator.cluster import Cluster
from service.estimator.device_calibration import calibration_id
from service.estimator.gpu import Gpu
from service.store import Connection, Job, keep_found_in, launch_check_in
from service.workflows.calibrations.own import OWN
from service.workflows.calibrations.steps import steps_on
from service.workflows.launch_checks.comparing import compared_probe, prediction_of
from service.workflows.launch_checks.deepening import deepened
from service.workflows.launch_checks.findings import Findings
from service.workflows.launch_checks.items import Expected
from service.workflows.launch_checks.outlook import reestimated
from service.workflows.launch_checks.plan_text import Kept, plan_from_json
from service.workflows.launch_checks.verdict import judged
from service.workflows.measurements.importing import predictor
from service.workflows.measurements.keeping import Origin, measurements_in, now_text
from service.workflows.wire import adapter_of, to_wire

LAUNCH_CHECK = "launch-check"
"""Kind of a launch check's job."""

_RECORDS = tuple[ProbeRecord, ...]


def keep_findings(connection: Connection, job: Job) -> None:
    """Keep what a launch check found, in the transaction that ends its job.

    Args:
        connection: the database, inside that transaction
        job: the job as it ended

    Raises:
        Refused: what the worker sent is not what a launch check brings
    """
    check = launch_check_in(connection, job.id)
    if check is None:
        return
    told = records_of(job.result)
    kept = plan_from_json(check.plan)
    records, impossible = without_impossible(told, kept.question.gpu if kept.is_matching else None)
    of_this_gpu = [record for record in records if kept.is_of_cluster(record.environment)]
    estimate = reestimated(kept.question, kept.before, of_this_gpu, steps_on(job.payload, OWN))
    found = found_of(kept, check.probes, records, estimate, impossible=impossible, is_whole=job.status == "succeeded")
    environments = _environments(records)
    keep_found_in(
        connection,
        job.id,
        to_wire(found),
        comparable=found["comparable"],
        device=environments[0].device if environments else None,
    )
    _keep_measurements(connection, job, kept, told)


def _keep_measurements(connection: Connection, job: Job, kept: Kept, records: Sequence[ProbeRecord]) -> None:
    """Keep what was measured beside what was predicted, for calibrations to be fitted on: each device's by itself."""
    for is_own, gpu in ((True, kept.question.gpu), (False, None)):
        own = [record for record in records if kept.is_of_cluster(record.environment) is is_own]
        expected = () if kept.is_matching and not is_own else kept.expected
        _keep_of_one_kind(connection, job, own, gpu, expected)


def _keep_of_one_kind(
    connection: Connection, job: Job, records: Sequence[ProbeRecord], gpu: Gpu | None, expected: Sequence[Expected]
) -> None:
    """Keep what was measured on one GPU of the catalogue, or on what is none."""
    predict = predictor(gpu)
    origin = Origin(
        source="launch check",
        run=job.id,
        measured_at=now_text(),
        owner=job.owner,
        launch_check_id=job.id,
        gpu=None if gpu is None else gpu.slug,
        calibration=None if gpu is None else calibration_id(gpu),
    )

    def predicted(observed: Observed) -> float | None:
        said = prediction_of(observed.probe, observed.measurement, expected)
        return predict(observed) if said is None else said

    measurements_in(connection, records, origin, predicted, gpu)


def records_of(result: Any) -> tuple[ProbeRecord, ...]:
    """What came of each probe, as a worker told.

    Args:
        result: the result of a job; None where it has none

    Returns:
        the records

    Raises:
        Refused: they are no such records
    """
    if result is None:
        return ()
    try:
        found: tuple[ProbeRecord, ...] = adapter_of(_RECORDS).validate_python(result["records"])
    except (KeyError, TypeError, ValidationError):
        raise Refused(
            Problem(
                field="result.records", code="not_records", message="these are not the records of a launch check",
                fix="run the worker of the release that the service runs",
            )
        ) from None  # fmt: skip
    return found


def found_of(
    kept: Kept,
    asked: Sequence[str],
    records: Sequence[ProbeRecord],
    estimate: Reestimate,
    *,
    impossible: Sequence[str] = (),
    is_whole: bool,
) -> Mapping[str, Any]:
    """What a launch check found.

    Args:
        kept: what was known before it ran
        asked: probes that were asked for
        records: what came of each probe
        estimate: what the job is expected to take before them and after
        impossible: why measurements were left out that no device can have made
        is_whole: whether it ran to its end, so that a verdict can be given

    Returns:
        fields of the answer that hold what was found
    """
    probes = (
        *(compared_probe(record, kept.expected_on(record.environment)) for record in records),
        *(_untold(name, kept) for name in asked if name not in {record.probe for record in records}),
    )
    environments = _environments(records)
    steps = [one for probe in probes if probe.probe == "step" for one in probe.measurements]
    depths = deepened(steps, kept.whole)
    comparable = all(map(kept.is_of_cluster, environments)) if environments else None
    cluster, gpu = kept.question.cluster, kept.question.gpu
    verdict: LaunchVerdict | None = None
    reasons: tuple[Reason, ...] = ()
    if is_whole:
        verdict, reasons = judged(
            Findings(
                probes=probes,
                environments=environments,
                comparable=bool(comparable),
                gpu=gpu.slug,
                rated_watts=_rated_watts(cluster, gpu),
                outlook=estimate.after or estimate.before,
                depths=depths,
                nodes=ceil(cluster.gpus / cluster.gpus_per_node),
                judges_memory=kept.judges_memory,
                impossible=impossible,
            )
        )
    return {
        "probes": probes,
        "comparable": comparable,
        "environment": environments[0] if environments else None,
        "verdict": verdict,
        "reasons": reasons,
        "estimate": estimate,
        "depths": depths,
    }


NOT_PLANNED = "nothing of it can be measured here; the assumptions say why"
NOT_TOLD = "the check ended before it told anything"


def _untold(name: Any, kept: Kept) -> ProbeAnswer:
    """A probe of which no record came: it had nothing to measure, or it was never reached."""
    is_planned = name in kept.planned
    return ProbeAnswer(
        probe=name,
        status="cancelled" if is_planned else "skipped",
        reason=NOT_TOLD if is_planned else NOT_PLANNED,
        done_fraction=0.0,
        seconds=None,
        measurements=(),
        summary=None,
    )


def _rated_watts(cluster: Cluster, gpu: Gpu) -> float:
    return cluster.power_limit_watts or gpu.board_watts


def _environments(records: Sequence[ProbeRecord]) -> list[Environment]:
    return [record.environment for record in records if record.environment is not None]
