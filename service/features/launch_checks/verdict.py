"""Verdict of a launch check: a table of rules with the best verdict that each leaves and the fix.

go: every measurement is as predicted or better, and the job fits. no-go: the job will fail, or waste most of its
cost. caution: everything between, and everything that could not be compared.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.answers.launch_checks import Compared, Deepened, LaunchVerdict, Measured, Outlook, ProbeAnswer, Reason
from service.calibration.records import HELD_BACK, Environment, LeftOutCode, Measurement, ProbeName, ProbeRecord
from service.features.launch_checks.items import Expected
from service.units import BYTES, in_units

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
        measured=Measured(
            low=measurement.low, value=measurement.value, high=measurement.high, repeats=measurement.repeats
        ),
        predicted=predicted,
        ratio=None if predicted is None or not predicted.value else measurement.value / predicted.value,
        count=None if match is None else match.count,
        relative_error_fraction=measurement.relative_error_fraction,
    )


def _is_of(measurement: Measurement, expected: Expected) -> bool:
    same = measurement.operation == expected.operation and measurement.quantity == expected.quantity
    return same and _holds(measurement.shape, expected.shape)


def _holds(shape: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    return all(name in shape and shape[name] == value for name, value in expected.items())


def prediction_of(probe: ProbeName, measurement: Measurement, expected: Sequence[Expected]) -> float | None:
    """Prediction for a measurement."""
    own = (one for one in expected if one.probe == probe and _is_of(measurement, one))
    match = next(own, None)
    return None if match is None or match.predicted is None else match.predicted.value


def slowness(compared: Sequence[Compared], *, at_high: bool = False) -> float | None:
    """How many times as slow measurements are as predicted, each by the share of a step that it takes.

    >>> from service.estimator.answer import Interval
    >>> one = Compared(operation="copy", shape={}, quantity="bytes_per_s", ratio=0.5, count=None,
    ...                measured=Measured(low=1.0, value=1.0, high=1.0, repeats=3),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the verdict."""

    code: str
    """Stable name."""
    verdict: LaunchVerdict
    """Best verdict that it leaves."""
    fix: str
    """Suggested fix."""
    found: Callable[[Findings], Iterable[str]]
    """Messages with numbers; empty where all is well."""


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
        code="out_of_memory", verdict="no-go", found=_estimate_verdict("out_of_memory"),
        fix="ask POST /v1/memory for changes that make it fit",
    ),
    Rule(
        code="measured_memory_exceeds", verdict="no-go", found=_measured_memory(1.0, float("inf")),
        fix="lower micro_batch or recompute activations until what was measured fits",
    ),
    Rule(
        code="step_out_of_memory", verdict="no-go",
        found=lambda findings: _failed_with("out of memory", findings, only="step"),
        fix="free the device's memory, or lower sequence_length or micro_batch",
    ),
    Rule(
        code="wrong_results", verdict="no-go", found=_wrong_results,
        fix="take the device out of service and have it tested: its arithmetic is wrong",
    ),
    Rule(
        code="driver_too_old", verdict="no-go",
        found=lambda findings: _failed_with("driver is too old", findings),
        fix="update the driver, or take an image whose torch is built for this one",
    ),
    Rule(
        code="broken_rate", verdict="no-go", found=lambda findings: _slower(findings, broken=True),
        fix="look for a broken link, a wrong BIOS setting or a device in a low power state before the job starts",
    ),
    Rule(
        code="at_risk", verdict="caution", found=_estimate_verdict("at_risk"),
        fix="ask POST /v1/memory for changes that make it fit surely",
    ),
    Rule(
        code="measured_memory_tight", verdict="caution", found=_measured_memory(TIGHT_FRACTION, 1.0),
        fix="leave room: lower micro_batch, or recompute activations",
    ),
    Rule(
        code="slower", verdict="caution", found=lambda findings: _slower(findings, broken=False),
        fix="plan with the estimate after the measurements, or find out what slows the device",
    ),
    Rule(
        code="throttled", verdict="caution", found=_throttled,
        fix="look after cooling and power limit, then check again",
    ),
    Rule(
        code="device_busy", verdict="caution", found=_busy,
        fix="end those processes, or take another device, then check again",
    ),
    Rule(
        code="partition", verdict="caution", found=_partition,
        fix="check on a whole GPU",
    ),
    Rule(
        code="probe_failed", verdict="caution", found=_ended("failed"),
        fix="mend what the reason says, then check again",
    ),
    Rule(
        code="probe_skipped", verdict="caution", found=_ended("skipped"),
        fix="check on a machine that can run it",
    ),
    Rule(
        code="impossible_value", verdict="caution", found=_impossible,
        fix="look at the worker and its clock: the value counts nowhere, and the check has to be made again",
    ),
    Rule(
        code="nothing_measured", verdict="caution", found=_nothing_measured,
        fix="ask for a larger time_budget_seconds, or for fewer probes",
    ),
    Rule(
        code="not_comparable", verdict="caution", found=_not_comparable,
        fix='start a worker on the cluster and ask with "on": "matching"',
    ),
    Rule(
        code="network_unmeasured", verdict="caution", found=_network_unmeasured,
        fix="run all_reduce_perf of nccl-tests over the job's nodes, and have its output imported as measurements",
    ),
    Rule(
        code="nothing_compared", verdict="caution", found=_nothing_to_compare,
        fix="ask for more probes or a larger time_budget_seconds",
    ),
)  # fmt: skip
"""Every rule, in the order of reasons with the same verdict."""
