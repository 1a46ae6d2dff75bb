"""Findings of a launch check and its verdict, computed and stored in the transaction that ends its job.

go: every measurement is as predicted or better, and the job fits. no-go: the job will fail, or waste most of its
cost. caution: everything between, and everything that could not be compared.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
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
from service.calibration.device_fit import StepsOn
from service.calibration.observations import Observed, without_impossible
from service.calibration.records import (
    HELD_BACK,
    Environment,
    LeftOutCode,
    Measurement,
    ProbeName,
    ProbeRecord,
    ProbeStatus,
)
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
from service.validation.serialization import adapter_of, to_wire

MEMORY_QUANTITIES = ("allocated_peak", "live_bytes_peak")
"""Memory quantities of a step, the preferred one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Findings of a launch check."""

    probes: Sequence[ProbeAnswer]
    """Answer of each probe."""
    environments: Sequence[Environment]
    """Environment of each probe."""
    comparable: bool
    """Whether they ran on the cluster's own GPU."""
    gpu: str
    """Catalogue name of the cluster's GPU."""
    rated_watts: float
    """Power that one GPU of the cluster may draw."""
    outlook: Outlook
    """Estimate of the job with the measurements."""
    depths: Sequence[Deepened]
    """Quantities of the whole model extrapolated from the step probe."""
    nodes: int = 1
    """Nodes that the job spans."""
    judges_memory: bool = True
    """Whether the step probe's attention stores the same tensors as the job's."""
    impossible: Sequence[str] = ()
    """Impossible values that were left out, with reasons."""

    @property
    def compared(self) -> list[Compared]:
        """Every measurement with its prediction."""
        return [one for probe in self.probes for one in probe.measurements]

    @property
    def memory_ratio_fraction(self) -> float | None:
        """Measured over predicted memory of the whole model on one device; None where it was not measured."""
        ratios = {one.quantity: one.ratio for one in self.depths}
        return next((ratios[name] for name in MEMORY_QUANTITIES if ratios.get(name) is not None), None)

    @property
    def measured_peak_bytes(self) -> float | None:
        """Memory of the job's peak GPU, scaled by the measured memory of the whole model; None without one."""
        ratio = self.memory_ratio_fraction
        return None if ratio is None or not self.judges_memory else ratio * self.outlook.device_peak_bytes.value


def left_out_of(probe: ProbeAnswer, code: LeftOutCode) -> Iterator[Mapping[str, Any]]:
    """Entries that a probe left out for one reason."""
    rows = (probe.summary or {}).get("left_out")
    if isinstance(rows, Sequence):
        yield from (row for row in rows if isinstance(row, Mapping) and row.get("code") == code)


def has_result(probe: ProbeAnswer) -> bool:
    """Whether a probe has results: figures, or the summary of a profile."""
    return bool(probe.summary) if probe.probe == "profile" else bool(probe.measurements)


def compared_probe(record: ProbeRecord, expected: Sequence[Expected]) -> ProbeAnswer:
    """Answer of a probe, each measurement with its prediction."""
    own = [one for one in expected if one.probe == record.probe]
    return ProbeAnswer(
        probe=record.probe,
        status=record.status,
        reason=record.reason,
        done_fraction=1.0 if record.status == "succeeded" else 0.0,
        seconds=record.seconds,
        measurements=tuple(_compared(measurement, own) for measurement in record.measurements),
        summary=record.summary,
    )


def _compared(measurement: Measurement, expected: Sequence[Expected]) -> Compared:
    match = next((one for one in expected if _is_of(measurement, one)), None)
    predicted = None if match is None else match.predicted
    return Compared(
        operation=measurement.operation,
        shape=measurement.shape,
        quantity=measurement.quantity,
        measured=MeasuredValue(
            low=measurement.low, value=measurement.value, high=measurement.high, repeats=measurement.repeats
        ),
        predicted=predicted,
        ratio=None if predicted is None or not predicted.value else measurement.value / predicted.value,
        count=None if match is None else match.count,
        relative_error_fraction=measurement.relative_error_fraction,
    )


def _is_of(measurement: Measurement, expected: Expected) -> bool:
    same = measurement.operation == expected.operation and measurement.quantity == expected.quantity
    return same and expected.shape.items() <= measurement.shape.items()


def prediction_of(probe: ProbeName, measurement: Measurement, expected: Sequence[Expected]) -> float | None:
    """Prediction for a measurement."""
    own = (one for one in expected if one.probe == probe and _is_of(measurement, one))
    match = next(own, None)
    return None if match is None or match.predicted is None else match.predicted.value


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


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the verdict."""

    code: str
    """Stable name."""
    verdict: LaunchVerdict
    """Best verdict that it leaves."""
    found: Callable[[Findings], Iterable[str]]
    """Messages with numbers; empty where all is well."""
    fix: str
    """Suggested fix."""


def launch_verdict(findings: Findings) -> tuple[LaunchVerdict, tuple[Reason, ...]]:
    """Verdict of a launch check and its reasons."""
    reasons = [
        Reason(code=rule.code, verdict=rule.verdict, message=message, fix=rule.fix)
        for rule in RULES
        for message in rule.found(findings)
    ]
    if not reasons:
        reasons = [_as_predicted(findings)]
    ordered = sorted(reasons, key=lambda reason: SEVERITY.index(reason.verdict))
    return ordered[0].verdict, tuple(ordered)


SEVERITY: tuple[LaunchVerdict, ...] = ("no-go", "caution", "go")
"""Verdicts, the worst first."""


def _as_predicted(findings: Findings) -> Reason:
    compared = [one for one in findings.compared if one.predicted is not None]
    message = f"{len(compared)} measurements are as predicted or better, and the job fits"
    return Reason(code="as_predicted", verdict="go", message=message, fix="start the job")


def _estimate_verdict(verdict: str) -> Callable[[Findings], Iterable[str]]:
    def found(findings: Findings) -> Iterable[str]:
        outlook = findings.outlook
        if outlook.verdict == verdict:
            peak, usable = (
                in_units(outlook.device_peak_bytes.value, BYTES),
                in_units(outlook.usable_bytes, BYTES),
            )
            risk = f"{outlook.oom_probability_fraction:.0%}"
            yield f"{peak} needed of {usable} on the fullest GPU, out of memory with a probability of {risk}"

    return found


def _measured_memory(low: float, high: float) -> Callable[[Findings], Iterable[str]]:
    def found(findings: Findings) -> Iterable[str]:
        peak, usable = findings.measured_peak_bytes, findings.outlook.usable_bytes
        ratio = findings.memory_ratio_fraction
        if peak is not None and low * usable < peak <= high * usable:
            yield (
                f"the step probe's memory at full depth is {ratio:.2f} times what was predicted of it; so much more on "
                f"the fullest GPU is {in_units(peak, BYTES)} of {in_units(usable, BYTES)}"
            )

    return found


def _wrong_results(findings: Findings) -> Iterable[str]:
    for probe in findings.probes:
        for row in left_out_of(probe, "wrong_result"):
            name = row.get("name") or row.get("kernel") or probe.probe
            yield f"{name} {row.get('operation')}: {row.get('reason')}"


def _slower(findings: Findings, *, broken: bool) -> Iterable[str]:
    for probe in findings.probes:
        scale, over = slowness(probe.measurements), slowness(probe.measurements, at_high=True)
        if probe.probe not in SLOW_PROBES or scale is None or over is None:
            continue
        if (scale >= BROKEN_SCALE) if broken else (over > 1 and scale < BROKEN_SCALE):
            yield f"{probe.probe} takes {scale:.2f} times what was predicted, outside its interval"


def _failed_with(words: str, findings: Findings, *, only: str | None = None) -> Iterable[str]:
    for probe in findings.probes:
        is_meant = only is None or probe.probe == only
        if is_meant and probe.status != "succeeded" and probe.reason and words in probe.reason.lower():
            yield f"{probe.probe}: {probe.reason}"


def _ended(status: str) -> Callable[[Findings], Iterable[str]]:
    def found(findings: Findings) -> Iterable[str]:
        for probe in findings.probes:
            if probe.status == status:
                yield f"{probe.probe}: {probe.reason or 'it gave no reason'}"

    return found


def _nothing_measured(findings: Findings) -> Iterable[str]:
    for probe in findings.probes:
        if probe.status == "cancelled" or (probe.status == "succeeded" and not has_result(probe)):
            yield f"{probe.probe}: {probe.reason or 'it reported nothing'}"


def _impossible(findings: Findings) -> Iterable[str]:
    if findings.impossible:
        more = len(findings.impossible) - 1
        yield f"{findings.impossible[0]}{f', and {more} more' if more else ''}"


def _throttled(findings: Findings) -> Iterable[str]:
    names = {name for environment in findings.environments for name in environment.throttle_reasons}
    if slowed := sorted(names & HELD_BACK.keys()):
        yield f"the driver lowered the clock while probes ran: {', '.join(slowed)}"
    limits = [one.power_limit_watts for one in findings.environments if one.power_limit_watts is not None]
    if POWER_CAP in names and limits and min(limits) < CAPPED_FRACTION * findings.rated_watts:
        yield f"the GPU is limited to {min(limits):g} W of {findings.rated_watts:g} W, and reached that"


def _busy(findings: Findings) -> Iterable[str]:
    most = max((environment.other_processes for environment in findings.environments), default=0)
    if most:
        yield f"{most} process(es) of others hold memory of the device"


def _partition(findings: Findings) -> Iterable[str]:
    if any(environment.is_partition for environment in findings.environments):
        yield "the device is a slice of a GPU (MIG), which has a part of its memory and processors"


def _not_comparable(findings: Findings) -> Iterable[str]:
    if not findings.comparable:
        devices = sorted({environment.device for environment in findings.environments}) or ["no device"]
        yield f"it ran on {', '.join(devices)}, and the cluster has {findings.gpu}"


def _nothing_to_compare(findings: Findings) -> Iterable[str]:
    if findings.comparable and not any(one.predicted is not None for one in findings.compared):
        yield "nothing was measured of which a formula says anything"


def _network_unmeasured(findings: Findings) -> Iterable[str]:
    spanned = max((one.shape.get("nodes", 1) for one in findings.compared), default=1)
    if findings.comparable and findings.nodes > 1 and spanned == 1:
        yield f"the job spans {findings.nodes} nodes, and no probe sent anything from one node to another"


RULES: tuple[Rule, ...] = (
    Rule(
        "out_of_memory", "no-go", _estimate_verdict("out_of_memory"), "ask POST /v1/memory for changes that make it fit"
    ),
    Rule(
        "measured_memory_exceeds",
        "no-go",
        _measured_memory(1.0, float("inf")),
        "lower micro_batch or recompute activations until what was measured fits",
    ),
    Rule(
        "step_out_of_memory",
        "no-go",
        lambda findings: _failed_with("out of memory", findings, only="step"),
        "free the device's memory, or lower sequence_length or micro_batch",
    ),
    Rule(
        "wrong_results",
        "no-go",
        _wrong_results,
        "take the device out of service and have it tested: its arithmetic is wrong",
    ),
    Rule(
        "driver_too_old",
        "no-go",
        lambda findings: _failed_with("driver is too old", findings),
        "update the driver, or take an image whose torch is built for this one",
    ),
    Rule(
        "broken_rate",
        "no-go",
        lambda findings: _slower(findings, broken=True),
        "look for a broken link, a wrong BIOS setting or a device in a low power state before the job starts",
    ),
    Rule("at_risk", "caution", _estimate_verdict("at_risk"), "ask POST /v1/memory for changes that make it fit surely"),
    Rule(
        "measured_memory_tight",
        "caution",
        _measured_memory(TIGHT_FRACTION, 1.0),
        "leave room: lower micro_batch, or recompute activations",
    ),
    Rule(
        "slower",
        "caution",
        lambda findings: _slower(findings, broken=False),
        "plan with the estimate after the measurements, or find out what slows the device",
    ),
    Rule("throttled", "caution", _throttled, "look after cooling and power limit, then check again"),
    Rule("device_busy", "caution", _busy, "end those processes, or take another device, then check again"),
    Rule("partition", "caution", _partition, "check on a whole GPU"),
    Rule("probe_failed", "caution", _ended("failed"), "mend what the reason says, then check again"),
    Rule("probe_skipped", "caution", _ended("skipped"), "check on a machine that can run it"),
    Rule(
        "impossible_value",
        "caution",
        _impossible,
        "look at the worker and its clock: the value counts nowhere, and the check has to be made again",
    ),
    Rule("nothing_measured", "caution", _nothing_measured, "ask for a larger time_budget_seconds, or for fewer probes"),
    Rule("not_comparable", "caution", _not_comparable, 'start a worker on the cluster and ask with "on": "matching"'),
    Rule(
        "network_unmeasured",
        "caution",
        _network_unmeasured,
        "run all_reduce_perf of nccl-tests over the job's nodes, and have its output imported as measurements",
    ),
    Rule("nothing_compared", "caution", _nothing_to_compare, "ask for more probes or a larger time_budget_seconds"),
)
"""Every rule, in the order of reasons with the same verdict."""


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


def _step(one: Compared) -> int:
    return int(one.shape.get("step", 0))


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
        *(
            probe_without_result(name, plan, NOT_REACHED)
            for name in requested
            if name not in {record.probe for record in records}
        ),
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


def _environments(records: Sequence[ProbeRecord]) -> list[Environment]:
    return [record.environment for record in records if record.environment is not None]
