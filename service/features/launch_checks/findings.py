"""Findings of a launch check and its verdict, computed and stored in the transaction that ends its job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from service.answers.launch_checks import (
    Compared,
    Deepened,
    LaunchVerdict,
    MeasuredValue,
    Outlook,
    ProbeAnswer,
    Reason,
    Reestimate,
)
from service.calibration.observations import Observed, without_impossible
from service.calibration.records import SLOWDOWNS, Environment, Measurement, ProbeName, ProbeRecord, ProbeStatus
from service.errors import Problem, Refused
from service.estimator.constants import DeviceCalibration, calibrated, calibration_id, calibration_of
from service.estimator.estimate import estimate
from service.estimator.question import Gpu, Question
from service.features.calibrations.fitting import OWN, steps_on, with_measured
from service.features.launch_checks.store import launch_check_in, store_findings_in
from service.features.launch_checks.targets import Expected
from service.features.measurements.importing import predictor
from service.features.measurements.measurements import Origin, measurements_in, now_text
from service.jobs.jobs import Job
from service.store import Connection
from service.units import BYTES, in_units
from service.validation.devices import is_device_of
from service.validation.reading import adapter_of, to_wire

MEMORY_QUANTITIES = ("allocated_peak", "live_bytes_peak")
"""Memory quantities of a step, the preferred one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    probes: Sequence[ProbeAnswer]
    environments: Sequence[Environment]
    comparable: bool
    """Whether they ran on the cluster's own GPU."""
    gpu: str
    rated_watts: float
    """Power that one GPU of the cluster may draw."""
    outlook: Outlook
    """Estimate of the job with the measurements."""
    depths: Sequence[Deepened]
    """Quantities of the whole model extrapolated from the step probe."""
    nodes: int = 1
    judges_memory: bool = True
    """Whether the step probe's attention stores the same tensors as the job's."""
    impossible: Sequence[str] = ()
    """Impossible values that were left out, with reasons."""


def compared_probe(record: ProbeRecord, expected: Sequence[Expected]) -> ProbeAnswer:
    return ProbeAnswer(
        probe=record.probe,
        status=record.status,
        reason=record.reason,
        done_fraction=1.0 if record.status == "succeeded" else 0.0,
        seconds=record.seconds,
        measurements=tuple(_compared(one, _plan_of(record.probe, one, expected)) for one in record.measurements),
        summary=record.summary,
    )


def _compared(measurement: Measurement, planned: Expected | None) -> Compared:
    predicted = None if planned is None else planned.predicted
    return Compared(
        operation=measurement.operation,
        shape=measurement.shape,
        quantity=measurement.quantity,
        measured=MeasuredValue(
            low=measurement.low, value=measurement.value, high=measurement.high, repeats=measurement.repeats
        ),
        predicted=predicted,
        ratio=None if predicted is None or not predicted.value else measurement.value / predicted.value,
        count=None if planned is None else planned.count,
        relative_error_fraction=measurement.relative_error_fraction,
    )


def _plan_of(probe: ProbeName, measurement: Measurement, expected: Sequence[Expected]) -> Expected | None:
    """The plan of a measurement, which may leave out dimensions of its shape."""
    identity = probe, measurement.operation, measurement.quantity
    same = (one for one in expected if (one.probe, one.operation, one.quantity) == identity)
    return next((one for one in same if one.shape.items() <= measurement.shape.items()), None)


def slowness(compared: Sequence[Compared], *, at_high: bool = False) -> float | None:
    """How many times as slow measurements are as predicted, each by the share of a step that it takes.

    >>> from service.estimator.answer import Interval
    >>> one = Compared(operation="copy", shape={}, quantity="bytes_per_s", ratio=0.5, count=None,
    ...                measured=MeasuredValue(low=1.0, value=1.0, high=1.0, repeats=3),
    ...                predicted=Interval(1.5, 2.0, 2.5, "analytic"), relative_error_fraction=None)
    >>> slowness([one]), slowness([one], at_high=True)
    (2.0, 1.5)
    """
    took = planned = 0.0
    weighed = [one for one in compared if one.count] or compared
    for one in weighed:
        if one.predicted is None or one.measured.value <= 0 or one.quantity == "bytes":
            continue
        times = one.count or 1.0
        if one.quantity == "seconds":
            took += times * one.measured.value
            planned += times * (one.predicted.high if at_high else one.predicted.value)
        else:
            took += times / one.measured.value
            planned += times / (one.predicted.low if at_high else one.predicted.value)
    return took / planned if planned else None


TIGHT_FRACTION = 0.95
"""Share of the usable memory above which a job has no room for a longer sequence or a fragment. Source: a choice."""
BROKEN_SCALE = 2.0
"""Slowdown that no spread of formulas explains: a link, a clock or a device is broken.
Source: a choice; the worst published GPU of a fitted kind is 1.3 times as slow."""

SLOW_PROBES = ("gemm", "attention", "bandwidth", "collective")
"""Probes whose formulas are fitted on benchmarks, so that being slower means something."""

POWER_CAP = "sw_power_cap"
"""The reason that a GPU at its rated power has under any heavy load, and a capped one under less. Source: the same."""

CAPPED_FRACTION = 0.97
"""Power limit over rated power below which a GPU counts as capped. Source: a choice; drivers round."""


def launch_verdict(findings: Findings) -> tuple[LaunchVerdict, tuple[Reason, ...]]:
    """Verdict of a launch check and its reasons, the worst first."""
    messages = [
        *_memory_messages(findings), *_device_messages(findings), *_comparison_messages(findings),
        *(message for probe in findings.probes for message in (*_failure_messages(probe), *_rate_messages(probe))),
    ]  # fmt: skip
    order = [*RULES]
    reasons = [
        Reason(code=code, verdict=RULES[code][0], message=message, fix=RULES[code][1])
        for code, message in sorted(messages, key=lambda one: order.index(one[0]))
    ]
    if not reasons:
        compared = sum(one.predicted is not None for probe in findings.probes for one in probe.measurements)
        message = f"{compared} measurements are as predicted or better, and the job fits"
        reasons = [Reason(code="as_predicted", verdict="go", message=message, fix="start the job")]
    return reasons[0].verdict, tuple(reasons)


RULES: Mapping[str, tuple[LaunchVerdict, str]] = adapter_of(dict[str, tuple[LaunchVerdict, str]]).validate_json(
    Path(__file__).with_name("rules.json").read_bytes()
)
"""Best verdict that each rule leaves, and its fix, by its code: the worst first, in the order of reasons."""

Messages = Iterator[tuple[str, str]]
"""Codes of rules with messages that hold their numbers."""


def _memory_messages(findings: Findings) -> Messages:
    outlook, usable = findings.outlook, findings.outlook.usable_bytes
    if outlook.verdict != "fits":
        needed = f"{in_units(outlook.device_peak_bytes.value, BYTES)} needed of {in_units(usable, BYTES)}"
        risk = f"{outlook.oom_probability_fraction:.0%}"
        yield outlook.verdict, f"{needed} on the fullest GPU, out of memory with a probability of {risk}"
    ratios = {one.quantity: one.ratio for one in findings.depths}
    ratio = next((ratios[name] for name in MEMORY_QUANTITIES if ratios.get(name) is not None), None)
    if ratio is None or not findings.judges_memory:
        return
    peak = ratio * outlook.device_peak_bytes.value
    if peak > TIGHT_FRACTION * usable:
        message = (
            f"the step probe's memory at full depth is {ratio:.2f} times what was predicted of it; so much more on "
            f"the fullest GPU is {in_units(peak, BYTES)} of {in_units(usable, BYTES)}"
        )
        yield "measured_memory_exceeds" if peak > usable else "measured_memory_tight", message


def _failure_messages(probe: ProbeAnswer) -> Messages:
    rows = (probe.summary or {}).get("left_out")
    for row in rows if isinstance(rows, Sequence) else ():
        if isinstance(row, Mapping) and row.get("code") == "wrong_result":
            name = row.get("name") or row.get("kernel") or probe.probe
            yield "wrong_results", f"{name} {row.get('operation')}: {row.get('reason')}"
    reason = (probe.reason or "").lower()
    if probe.status in ("failed", "skipped"):
        yield f"probe_{probe.status}", f"{probe.probe}: {probe.reason or 'it gave no reason'}"
    if probe.status != "succeeded" and probe.probe == "step" and "out of memory" in reason:
        yield "step_out_of_memory", f"{probe.probe}: {probe.reason}"
    if probe.status != "succeeded" and "driver is too old" in reason:
        yield "driver_too_old", f"{probe.probe}: {probe.reason}"


def _rate_messages(probe: ProbeAnswer) -> Messages:
    has_result = bool(probe.summary) if probe.probe == "profile" else bool(probe.measurements)
    if probe.status == "cancelled" or (probe.status == "succeeded" and not has_result):
        yield "nothing_measured", f"{probe.probe}: {probe.reason or 'it reported nothing'}"
    scale, over = slowness(probe.measurements), slowness(probe.measurements, at_high=True)
    if probe.probe in SLOW_PROBES and scale is not None and over is not None and (scale >= BROKEN_SCALE or over > 1):
        code = "broken_rate" if scale >= BROKEN_SCALE else "slower"
        yield code, f"{probe.probe} takes {scale:.2f} times what was predicted, outside its interval"


def _device_messages(findings: Findings) -> Messages:
    environments = findings.environments
    names = {name for environment in environments for name in environment.throttle_reasons}
    if slowed := sorted(names & SLOWDOWNS.keys()):
        yield "throttled", f"the driver lowered the clock while probes ran: {', '.join(slowed)}"
    limits = [one.power_limit_watts for one in environments if one.power_limit_watts is not None]
    if POWER_CAP in names and limits and min(limits) < CAPPED_FRACTION * findings.rated_watts:
        message = f"the GPU is limited to {min(limits):g} W of {findings.rated_watts:g} W, and reached that"
        yield "throttled", message
    if most := max((environment.other_processes for environment in environments), default=0):
        yield "device_busy", f"{most} process(es) of others hold memory of the device"
    if any(environment.is_partition for environment in environments):
        yield "partition", "the device is a slice of a GPU (MIG), which has a part of its memory and processors"


def _comparison_messages(findings: Findings) -> Messages:
    if findings.impossible:
        more = len(findings.impossible) - 1
        yield "impossible_value", f"{findings.impossible[0]}{f', and {more} more' if more else ''}"
    if not findings.comparable:
        devices = sorted({environment.device for environment in findings.environments}) or ["no device"]
        yield "not_comparable", f"it ran on {', '.join(devices)}, and the cluster has {findings.gpu}"
        return
    compared = [one for probe in findings.probes for one in probe.measurements]
    if all(one.predicted is None for one in compared):
        yield "nothing_compared", "nothing was measured of which a formula says anything"
    if findings.nodes > 1 and max((one.shape.get("nodes", 1) for one in compared), default=1) == 1:
        message = f"the job spans {findings.nodes} nodes, and no probe sent anything from one node to another"
        yield "network_unmeasured", message


QUANTITIES = ("live_bytes_peak", "allocated_peak", "step")
"""Measurements of a step that grow with the depth."""


def at_full_depth(measured: Sequence[Compared], whole: Sequence[Expected]) -> tuple[Deepened, ...]:
    """Quantities of the measured depths extrapolated to full depth, with the prediction for each."""
    rows = (_at_full_depth(name, measured, whole) for name in QUANTITIES)
    return tuple(one for one in rows if one is not None)


def _at_full_depth(operation: str, measured: Sequence[Compared], whole: Sequence[Expected]) -> Deepened | None:
    full = next((one for one in whole if one.operation == operation), None)
    last: dict[int, Compared] = {}
    for one in measured:
        if one.operation == operation and "depth" in one.shape:
            depth = int(one.shape["depth"])
            if depth not in last or one.shape.get("step", 0) > last[depth].shape.get("step", 0):
                last[depth] = one
    if full is None or len(last) != 2:
        return None
    smaller, larger = sorted(last)
    layers, less, more = int(full.shape["depth"]), last[smaller], last[larger]
    values = less.measured.value, more.measured.value
    each = (values[1] - values[0]) / (larger - smaller)
    if each <= 0:  # a smaller model cannot take more: what was measured is noise
        return None
    predicted = None if full.predicted is None else full.predicted.value
    if predicted is None or less.predicted is None or more.predicted is None:
        value = _extrapolated((smaller, larger), values, layers)
    else:
        missed = values[0] - less.predicted.value, values[1] - more.predicted.value
        value = predicted + _extrapolated((smaller, larger), missed, layers)
    return Deepened(
        quantity=operation,
        depths=(smaller, larger),
        layers=layers,
        each_layer=each,
        measured=value,
        predicted=predicted,
        ratio=value / predicted if predicted else None,
    )


def _extrapolated(depths: tuple[int, int], values: tuple[float, float], layers: int) -> float:
    """Linear extrapolation of two values to a third depth.

    >>> _extrapolated((1, 2), (10.0, 14.0), 32)
    134.0
    """
    (smaller, larger), (less, more) = depths, values
    return less + (more - less) / (larger - smaller) * (layers - smaller)


_CALIBRATION = DeviceCalibration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Question and predictions of a launch check, stored before it runs."""

    question: Question
    before: Outlook
    """Estimate of the job before the check."""
    expected: tuple[Expected, ...]
    whole: tuple[Expected, ...]
    assumptions: tuple[str, ...]
    planned: tuple[str, ...]
    """Probes that have something to measure."""
    is_matching: bool
    """Whether it was planned for the cluster's own GPU, which its predictions then apply to."""
    device_names: tuple[str, ...] = ()
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
    question, gpu = plan.question, plan.question.gpu
    uncalibrated = replace(plan, question=replace(question, gpu=calibrated(gpu, None)))
    fields: dict[str, Any] = adapter_of(LaunchPlan).dump_python(uncalibrated, mode="json")
    return fields | {"calibration": adapter_of(_CALIBRATION).dump_python(calibration_of(gpu), mode="json")}


def plan_from_json(plan: Mapping[str, Any]) -> LaunchPlan:
    """Read a launch plan back; plans of before have no device names, and count as measured elsewhere."""
    fields = {name: value for name, value in plan.items() if name != "calibration"}
    read: LaunchPlan = adapter_of(LaunchPlan).validate_python(fields)
    calibration = adapter_of(_CALIBRATION).validate_python(plan["calibration"])
    return replace(read, question=replace(read.question, gpu=calibrated(read.question.gpu, calibration)))


CARRIED_OVER = ("rates measured alone on this device stand for every GPU of the cluster, inside steps too",)


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


LAUNCH_CHECK = "launch-check"

_RECORDS = tuple[ProbeRecord, ...]


def store_findings(connection: Connection, job: Job) -> None:
    """Store the findings of a launch check in the transaction that ends its job."""
    check = launch_check_in(connection, job.id)
    if check is None:
        return
    reported = _records_of(job.result)
    plan = plan_from_json(check.plan)
    records, impossible = without_impossible(reported, plan.question.gpu if plan.is_matching else None)
    of_this_gpu = [record for record in records if plan.is_of_cluster(record.environment)]
    measured = with_measured(plan.question, of_this_gpu, steps_on(job.payload, OWN))
    estimate = Reestimate(before=plan.before, after=None, assumptions=())
    if measured != plan.question:
        estimate = replace(estimate, after=outlook_of(measured), assumptions=CARRIED_OVER)
    findings = _findings_of(plan, check.probes, records, estimate, impossible, is_whole=job.status == "succeeded")
    device = None if findings["environment"] is None else findings["environment"].device
    store_findings_in(connection, job.id, to_wire(findings), comparable=findings["comparable"], device=device)
    for gpu in (plan.question.gpu, None):
        own = [record for record in reported if plan.is_of_cluster(record.environment) is (gpu is not None)]
        _store_measurements(connection, job, own, gpu, () if plan.is_matching and gpu is None else plan.expected)


def _store_measurements(
    connection: Connection, job: Job, records: Sequence[ProbeRecord], gpu: Gpu | None, expected: Sequence[Expected]
) -> None:
    """Store measurements of one catalogue GPU, or of a device outside the catalogue, for fitting calibrations."""
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
        planned = _plan_of(observed.probe, observed.measurement, expected)
        return predict(observed) if planned is None or planned.predicted is None else planned.predicted.value

    measurements_in(connection, records, origin, predicted, gpu)


def _records_of(result: Any) -> tuple[ProbeRecord, ...]:
    try:
        records: tuple[ProbeRecord, ...] = (
            () if result is None else adapter_of(_RECORDS).validate_python(result["records"])
        )
    except (KeyError, TypeError, ValidationError):
        message = "these are not the records of a launch check"
        fix = "run the worker of the release that the service runs"
        raise Refused(Problem(field="result.records", code="not_records", message=message, fix=fix)) from None
    return records


def _findings_of(
    plan: LaunchPlan,
    requested: Sequence[str],
    records: Sequence[ProbeRecord],
    estimate: Reestimate,
    impossible: Sequence[str],
    *,
    is_whole: bool,
) -> Mapping[str, Any]:
    reached = {record.probe for record in records}
    probes = (
        *(compared_probe(record, plan.expected_on(record.environment)) for record in records),
        *(probe_without_result(name, plan, NOT_REACHED) for name in requested if name not in reached),
    )
    environments = [record.environment for record in records if record.environment is not None]
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
NOT_REACHED = {"status": "cancelled", "reason": "the check ended before it reported anything"}


def probe_without_result(name: Any, plan: LaunchPlan, reported: Mapping[str, Any]) -> ProbeAnswer:
    """Answer for a probe without a result: it has nothing to measure, or it reported at most how far it is."""
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
