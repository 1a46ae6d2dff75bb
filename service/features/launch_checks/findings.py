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
from service.estimator.question import Gpu, Question
from service.features.calibrations.fitting import OWN, steps_on, with_measured
from service.features.launch_checks.items import Expected
from service.features.launch_checks.store import launch_check_in, store_findings_in
from service.features.launch_checks.verdict import Findings, compared_probe, launch_verdict, prediction_of
from service.features.measurements.importing import predictor
from service.features.measurements.measurements import Origin, measurements_in, now_text
from service.jobs.jobs import Job
from service.store import Connection
from service.validation.devices import is_device_of
from service.validation.serialization import adapter_of, to_wire

QUANTITIES = ("live_bytes_peak", "allocated_peak", "step")
"""Measurements of a step that grow with the depth."""


def at_full_depth(measured: Sequence[Compared], whole: Sequence[Expected]) -> tuple[Deepened, ...]:
    """Quantities of the measured depths extrapolated to full depth, with the prediction for each.

    A deeper model may peak at another moment of the step. Where predictions exist, they give the growth, and the
    residual at both depths is extrapolated; else the measured quantity is.
    """
    rows = (_at_full_depth(name, measured, whole) for name in QUANTITIES)
    return tuple(one for one in rows if one is not None)


def _at_full_depth(operation: str, measured: Sequence[Compared], whole: Sequence[Expected]) -> Deepened | None:
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
    value = _full_depth_value((smaller, larger), both, layers, predicted)
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


def _full_depth_value(
    depths: tuple[int, int], both: tuple[Compared, Compared], layers: int, predicted: float | None
) -> float:
    """The quantity at full depth."""
    less, more = both
    if predicted is None or less.predicted is None or more.predicted is None:
        return _extrapolated(depths, (less.measured.value, more.measured.value), layers)
    missed = (less.measured.value - less.predicted.value, more.measured.value - more.predicted.value)
    return predicted + _extrapolated(depths, missed, layers)


def _extrapolated(depths: tuple[int, int], values: tuple[float, float], layers: int) -> float:
    """Linear extrapolation of two values to a third depth.

    >>> _extrapolated((1, 2), (10.0, 14.0), 32)
    134.0
    """
    (smaller, larger), (less, more) = depths, values
    return less + (more - less) / (larger - smaller) * (layers - smaller)


_CALIBRATION = DeviceCalibration | None
_EXPECTED = tuple[Expected, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Question and predictions of a launch check, stored before it runs."""

    question: Question
    """Its question, with names looked up and defaults filled."""
    before: Outlook
    """Estimate of the job before the check."""
    expected: tuple[Expected, ...]
    """Planned measurements with their predictions."""
    whole: tuple[Expected, ...]
    """Predictions for a step of the whole model."""
    assumptions: tuple[str, ...]
    """Differences from the job."""
    planned: tuple[str, ...]
    """Probes that have something to measure."""
    is_matching: bool
    """Whether it was planned for the cluster's own GPU, which its predictions then apply to."""
    device_names: tuple[str, ...] = ()
    """Names of the cluster's GPU in drivers."""
    judges_memory: bool = False
    """Whether the step probe's memory can be compared with the job's."""

    def is_of_cluster(self, environment: Environment | None) -> bool:
        """Whether a measurement ran on the cluster's own GPU, whatever it was planned for."""
        if environment is None or environment.kind == "cpu" or not self.is_matching:
            return False
        memory_bytes = environment.memory_bytes or None
        return is_device_of(environment.device, memory_bytes, self.device_names, self.question.gpu)

    def expected_on(self, environment: Environment | None) -> tuple[Expected, ...]:
        """Planned measurements whose predictions apply to a device."""
        return () if self.is_matching and not self.is_of_cluster(environment) else self.expected


def plan_as_json(plan: LaunchPlan) -> dict[str, Any]:
    """A launch plan as plain JSON values."""
    return {
        "question": adapter_of(Question).dump_python(
            replace(plan.question, gpu=calibrated(plan.question.gpu, None)), mode="json"
        ),
        "calibration": adapter_of(_CALIBRATION).dump_python(calibration_of(plan.question.gpu), mode="json"),
        "before": adapter_of(Outlook).dump_python(plan.before, mode="json"),
        "expected": adapter_of(_EXPECTED).dump_python(plan.expected, mode="json"),
        "whole": adapter_of(_EXPECTED).dump_python(plan.whole, mode="json"),
        "assumptions": list(plan.assumptions),
        "planned": list(plan.planned),
        "is_matching": plan.is_matching,
        "device_names": list(plan.device_names),
        "judges_memory": plan.judges_memory,
    }


def plan_from_json(plan: Mapping[str, Any]) -> LaunchPlan:
    """Read a launch plan back."""
    question = adapter_of(Question).validate_python(plan["question"])
    calibration = adapter_of(_CALIBRATION).validate_python(plan["calibration"])
    return LaunchPlan(
        question=replace(question, gpu=calibrated(question.gpu, calibration)),
        before=adapter_of(Outlook).validate_python(plan["before"]),
        expected=adapter_of(_EXPECTED).validate_python(plan["expected"]),
        whole=adapter_of(_EXPECTED).validate_python(plan["whole"]),
        assumptions=tuple(plan["assumptions"]),
        planned=tuple(plan["planned"]),
        is_matching=plan["is_matching"],
        device_names=tuple(plan.get("device_names", ())),  # plans of before have none, and count as measured elsewhere
        judges_memory=plan.get("judges_memory", False),
    )


CARRIED_OVER = ("rates measured alone on this device stand for every GPU of the cluster, inside steps too",)
"""Assumptions of a new estimate."""


def outlook_of(question: Question) -> Outlook:
    """Short estimate of a job."""
    answer = estimate(question)
    memory, totals = answer.memory, answer.totals
    return Outlook(
        verdict=answer.verdict,
        oom_probability_fraction=memory.oom_probability_fraction,
        device_peak_bytes=memory.device_peak_bytes,
        usable_bytes=memory.usable_bytes,
        step_seconds=answer.step.step_seconds,
        mfu_fraction=answer.step.mfu_fraction,
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


def store_findings(connection: Connection, job: Job) -> None:
    """Store the findings of a launch check in the transaction that ends its job."""
    check = launch_check_in(connection, job.id)
    if check is None:
        return
    reported = records_of(job.result)
    plan = plan_from_json(check.plan)
    records, impossible = without_impossible(reported, plan.question.gpu if plan.is_matching else None)
    of_this_gpu = [record for record in records if plan.is_of_cluster(record.environment)]
    estimate = reestimated(plan.question, plan.before, of_this_gpu, steps_on(job.payload, OWN))
    findings = findings_of(
        plan, check.probes, records, estimate, impossible=impossible, is_whole=job.status == "succeeded"
    )
    environments = _environments(records)
    store_findings_in(
        connection,
        job.id,
        to_wire(findings),
        comparable=findings["comparable"],
        device=environments[0].device if environments else None,
    )
    _store_measurements(connection, job, plan, reported)


def _store_measurements(connection: Connection, job: Job, plan: LaunchPlan, records: Sequence[ProbeRecord]) -> None:
    """Store measurements with their predictions for fitting calibrations, each device by itself."""
    for is_own, gpu in ((True, plan.question.gpu), (False, None)):
        own = [record for record in records if plan.is_of_cluster(record.environment) is is_own]
        expected = () if plan.is_matching and not is_own else plan.expected
        _store_measurements_of(connection, job, own, gpu, expected)


def _store_measurements_of(
    connection: Connection, job: Job, records: Sequence[ProbeRecord], gpu: Gpu | None, expected: Sequence[Expected]
) -> None:
    """Store measurements of one catalogue GPU, or of a device outside the catalogue."""
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
        value = prediction_of(observed.probe, observed.measurement, expected)
        return predict(observed) if value is None else value

    measurements_in(connection, records, origin, predicted, gpu)


def records_of(result: Any) -> tuple[ProbeRecord, ...]:
    """Probe records in the result of a worker."""
    if result is None:
        return ()
    try:
        records: tuple[ProbeRecord, ...] = adapter_of(_RECORDS).validate_python(result["records"])
    except (KeyError, TypeError, ValidationError):
        raise Refused(
            Problem(
                field="result.records", code="not_records", message="these are not the records of a launch check",
                fix="run the worker of the release that the service runs",
            )
        ) from None  # fmt: skip
    return records


def findings_of(
    plan: LaunchPlan,
    requested: Sequence[str],
    records: Sequence[ProbeRecord],
    estimate: Reestimate,
    *,
    impossible: Sequence[str] = (),
    is_whole: bool,
) -> Mapping[str, Any]:
    """Findings of a launch check."""
    probes = (
        *(compared_probe(record, plan.expected_on(record.environment)) for record in records),
        *(_without_record(name, plan) for name in requested if name not in {record.probe for record in records}),
    )
    environments = _environments(records)
    steps = [one for probe in probes if probe.probe == "step" for one in probe.measurements]
    depths = at_full_depth(steps, plan.whole)
    comparable = all(map(plan.is_of_cluster, environments)) if environments else None
    cluster, gpu = plan.question.cluster, plan.question.gpu
    verdict: LaunchVerdict | None = None
    reasons: tuple[Reason, ...] = ()
    if is_whole:
        verdict, reasons = launch_verdict(
            Findings(
                probes=probes,
                environments=environments,
                comparable=bool(comparable),
                gpu=gpu.slug,
                rated_watts=cluster.power_limit_watts or gpu.board_watts,
                outlook=estimate.after or estimate.before,
                depths=depths,
                nodes=ceil(cluster.gpus / cluster.gpus_per_node),
                judges_memory=plan.judges_memory,
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
NO_RECORD = "the check ended before it reported anything"


def _without_record(name: Any, plan: LaunchPlan) -> ProbeAnswer:
    """Answer for a probe without a record: it had nothing to measure, or it was not reached."""
    is_planned = name in plan.planned
    return ProbeAnswer(
        probe=name,
        status="cancelled" if is_planned else "skipped",
        reason=NO_RECORD if is_planned else NOT_PLANNED,
        done_fraction=0.0,
        seconds=None,
        measurements=(),
        summary=None,
    )


def _environments(records: Sequence[ProbeRecord]) -> list[Environment]:
    return [record.environment for record in records if record.environment is not None]
