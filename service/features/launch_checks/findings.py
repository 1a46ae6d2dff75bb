"""Findings of a launch check, computed and stored in the transaction that ends its job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from pydantic import ValidationError

from service.answers.launch_checks import Compared, Deepened, LaunchVerdict, Outlook, ProbeAnswer, Reason, Reestimate
from service.calibration.device_fit import StepsOn
from service.calibration.observations import Observed, without_impossible
from service.calibration.records import Environment, ProbeRecord
from service.errors import Problem, Refused
from service.estimator.constants import DeviceCalibration, calibrated, calibration_id, calibration_of
from service.estimator.estimate import estimate
from service.estimator.question import Cluster, Gpu, Question
from service.features.calibrations.fitting import OWN, steps_on, with_measured
from service.features.launch_checks.items import Expected
from service.features.launch_checks.store import keep_found_in, launch_check_in
from service.features.launch_checks.verdict import Findings, compared_probe, judged, prediction_of
from service.features.measurements.importing import predictor
from service.features.measurements.measurements import Origin, measurements_in, now_text
from service.jobs.jobs import Job
from service.store import Connection
from service.validation.devices import is_device_of
from service.validation.serialization import adapter_of, to_wire

QUANTITIES = ("live_bytes_peak", "allocated_peak", "step")
"""Measurements of a step that grow with the depth."""


def deepened(measured: Sequence[Compared], whole: Sequence[Expected]) -> tuple[Deepened, ...]:
    """What the measured depths come to at the model's full depth, beside what is predicted of it.

    The fullest moment of a step may be another one in a deeper model, so where predictions exist they say how a
    quantity grows, and what they miss at both depths is carried on; else the quantity itself is.
    """
    found = (_deepened(name, measured, whole) for name in QUANTITIES)
    return tuple(one for one in found if one is not None)


def _deepened(operation: str, measured: Sequence[Compared], whole: Sequence[Expected]) -> Deepened | None:
    full = next((one for one in whole if one.operation == operation), None)
    last: dict[int, Compared] = {}
    for one in measured:
        if one.operation == operation and "depth" in one.shape:
            depth = int(one.shape["depth"])
            if depth not in last or _step(one) > _step(last[depth]):
                last[depth] = one
    if full is None or len(last) != 2:
        return None
    smaller, larger = sorted(last)
    layers, both = int(full.shape["depth"]), (last[smaller], last[larger])
    each = (both[1].measured.value - both[0].measured.value) / (larger - smaller)
    if each <= 0:  # a smaller model cannot take more: what was measured is noise
        return None
    predicted = None if full.predicted is None else full.predicted.value
    value = _whole((smaller, larger), both, layers, predicted)
    return Deepened(
        quantity=operation,
        depths=(smaller, larger),
        layers=layers,
        each_layer=each,
        measured=value,
        predicted=predicted,
        ratio=value / predicted if predicted else None,
    )


def _step(one: Compared) -> int:
    return int(one.shape.get("step", 0))


def _whole(depths: tuple[int, int], both: tuple[Compared, Compared], layers: int, predicted: float | None) -> float:
    """The quantity at full depth."""
    less, more = both
    if predicted is None or less.predicted is None or more.predicted is None:
        return _carried_on(depths, (less.measured.value, more.measured.value), layers)
    missed = (less.measured.value - less.predicted.value, more.measured.value - more.predicted.value)
    return predicted + _carried_on(depths, missed, layers)


def _carried_on(depths: tuple[int, int], values: tuple[float, float], layers: int) -> float:
    """What grows evenly from one depth to another, at a third one.

    >>> _carried_on((1, 2), (10.0, 14.0), 32)
    134.0
    """
    (smaller, larger), (less, more) = depths, values
    return less + (more - less) / (larger - smaller) * (layers - smaller)


_CALIBRATION = DeviceCalibration | None
_EXPECTED = tuple[Expected, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was known before a launch check ran."""

    question: Question
    """Its question, every name looked up and every default filled."""
    before: Outlook
    """What the job was expected to take."""
    expected: tuple[Expected, ...]
    """What was predicted of each measurement to come."""
    whole: tuple[Expected, ...]
    """What was predicted of a step of the whole model."""
    assumptions: tuple[str, ...]
    """What differs from the job."""
    planned: tuple[str, ...]
    """Probes that have something to measure."""
    is_matching: bool
    """Whether it was planned for the cluster's own GPU, of which its predictions are then."""
    device_names: tuple[str, ...] = ()
    """What drivers call the cluster's GPU."""
    judges_memory: bool = False
    """Whether the step probe's memory says something of the job's."""

    def is_of_cluster(self, environment: Environment | None) -> bool:
        """Whether something was measured on the cluster's own GPU, whatever it was planned for."""
        if environment is None or environment.kind == "cpu" or not self.is_matching:
            return False
        memory_bytes = environment.memory_bytes or None
        return is_device_of(environment.device, memory_bytes, self.device_names, self.question.gpu)

    def expected_on(self, environment: Environment | None) -> tuple[Expected, ...]:
        """What was predicted of measurements on some device."""
        return () if self.is_matching and not self.is_of_cluster(environment) else self.expected


def plan_as_json(kept: Kept) -> dict[str, Any]:
    """What was known before, as plain JSON values."""
    return {
        "question": adapter_of(Question).dump_python(_bare(kept.question), mode="json"),
        "calibration": adapter_of(_CALIBRATION).dump_python(calibration_of(kept.question.gpu), mode="json"),
        "before": adapter_of(Outlook).dump_python(kept.before, mode="json"),
        "expected": adapter_of(_EXPECTED).dump_python(kept.expected, mode="json"),
        "whole": adapter_of(_EXPECTED).dump_python(kept.whole, mode="json"),
        "assumptions": list(kept.assumptions),
        "planned": list(kept.planned),
        "is_matching": kept.is_matching,
        "device_names": list(kept.device_names),
        "judges_memory": kept.judges_memory,
    }


def plan_from_json(plan: Mapping[str, Any]) -> Kept:
    """What was known before, read back."""
    question = adapter_of(Question).validate_python(plan["question"])
    calibration = adapter_of(_CALIBRATION).validate_python(plan["calibration"])
    return Kept(
        question=_with_calibration(question, calibration),
        before=adapter_of(Outlook).validate_python(plan["before"]),
        expected=adapter_of(_EXPECTED).validate_python(plan["expected"]),
        whole=adapter_of(_EXPECTED).validate_python(plan["whole"]),
        assumptions=tuple(plan["assumptions"]),
        planned=tuple(plan["planned"]),
        is_matching=plan["is_matching"],
        device_names=tuple(plan.get("device_names", ())),  # plans of before have none, and count as measured elsewhere
        judges_memory=plan.get("judges_memory", False),
    )


def _bare(question: Question) -> Question:
    return replace(question, gpu=calibrated(question.gpu, None))


def _with_calibration(question: Question, calibration: DeviceCalibration | None) -> Question:
    return replace(question, gpu=calibrated(question.gpu, calibration))


CARRIED_OVER = ("rates measured alone on this device stand for every GPU of the cluster, inside steps too",)
"""What a new estimate takes for granted."""


def outlook_of(question: Question) -> Outlook:
    """What a job is expected to take, in short."""
    found = estimate(question)
    memory, totals = found.memory, found.totals
    return Outlook(
        verdict=found.verdict,
        oom_probability_fraction=memory.oom_probability_fraction,
        device_peak_bytes=memory.device_peak_bytes,
        usable_bytes=memory.usable_bytes,
        step_seconds=found.step.step_seconds,
        mfu_fraction=found.step.mfu_fraction,
        gpu_hours=None if totals is None else totals.gpu_hours,
        cost_usd=None if totals is None else totals.cost_usd,
    )


def reestimated(
    question: Question, before: Outlook, records: Sequence[ProbeRecord], steps_on: StepsOn | None = None
) -> Reestimate:
    """The estimate before and after some measurements."""
    measured = with_measured(question, records, steps_on)
    if measured == question:
        return Reestimate(before=before, after=None, assumptions=())
    return Reestimate(before=before, after=outlook_of(measured), assumptions=CARRIED_OVER)


LAUNCH_CHECK = "launch-check"
"""Kind of a launch check's job."""

_RECORDS = tuple[ProbeRecord, ...]


def keep_findings(connection: Connection, job: Job) -> None:
    """Keep what a launch check found, in the transaction that ends its job."""
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
    """What came of each probe, as a worker told."""
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
    """What a launch check found."""
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
