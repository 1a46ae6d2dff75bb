"""Ends of intervals, each worked out from the errors that made it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import exp, isclose
from typing import Any, Literal

from service.estimator.answer import Estimate, Inputs, Interval, Reference
from service.estimator.constants import own_spread_fraction
from service.estimator.explain.expression import Expression, Formula, Working
from service.estimator.explain.in_numbers import evaluated
from service.estimator.memory import device
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run import totals
from service.estimator.time import step

End = Literal["low", "high"]
_OTHER: Mapping[End, End] = {"low": "high", "high": "low"}
ACCURACY = "/v1/accuracy"


def intervals_of(answer: Any, cell: str = "") -> Iterator[tuple[str, Interval]]:
    """Every interval below a part of an answer, by its cell name."""
    if isinstance(answer, Interval):
        yield cell, answer
    elif isinstance(answer, tuple):
        for place, one in enumerate(answer):
            yield from intervals_of(one, f"{cell}.{getattr(one, 'kind', place)}")
    elif is_dataclass(answer):
        for field in fields(answer):
            yield from intervals_of(getattr(answer, field.name), f"{cell}.{field.name}".lstrip("."))


@dataclass(slots=True)
class Ends:
    """Ends of the intervals of an answer, by their cell names."""

    resolved: ResolvedQuestion
    estimate: Estimate
    values: Mapping[str, Working]
    """What is worked out, by cell name."""
    refs: Mapping[str, Mapping[str, str | None]]
    """Names of the explanations of the inputs of each."""

    def workings(self) -> Iterator[Working]:
        """Both ends of every interval."""
        intervals = dict(intervals_of(self.estimate))
        notes: dict[str, tuple[Reference, ...]] = {}
        for cell in sorted(intervals, key=lambda cell: cell.startswith("totals.cost")):
            for end in ("low", "high"):
                one = self._end(cell, end, intervals, notes)
                notes[one.path] = one.notes
                yield one

    def _end(
        self, cell: str, end: End, intervals: Mapping[str, Interval], notes: Mapping[str, tuple[Reference, ...]]
    ) -> Working:
        own = _OWN.get(cell.rpartition(".")[2] if cell.startswith("totals.stages") else cell)
        if own is None:
            return self._propagated(cell, end, intervals, notes)
        formula, expression, note = own(self, cell, end)
        value, unit = getattr(intervals[cell], end), self.values[f"{cell}.value"].unit
        return Working(f"{cell}.{end}", value, formula, expression, unit, note)

    def _propagated(
        self, cell: str, end: End, intervals: Mapping[str, Interval], notes: Mapping[str, tuple[Reference, ...]]
    ) -> Working:
        """The end that the same equation gives from ends of its inputs: the same ones, or the other ones."""
        given, value = self.values[f"{cell}.value"], getattr(intervals[cell], end)
        known = {name: (ref or "").removesuffix(".value") for name, ref in self.refs[given.path].items()}
        uncertain = {name: ref for name, ref in known.items() if ref in intervals}
        for side in (end, _OTHER[end]):
            inputs: Inputs = {name: getattr(intervals[ref], side) for name, ref in uncertain.items()}
            whole = Expression(given.expression.text, {**given.expression.inputs, **inputs})
            if isclose(evaluated(whole.text, whole.inputs), value, rel_tol=1e-9, abs_tol=1e-15):
                break
        sources = dict.fromkeys(note for ref in uncertain.values() for note in notes.get(f"{ref}.{side}", ()))
        return Working(f"{cell}.{end}", value, given.formula, whole, given.unit, tuple(sources))


def _note(name: str, share: str) -> Reference:
    text = f"held-out error of the class {name}: 80 % of {share} of predictions that never saw their source"
    return Reference(kind="measured", text=text, url=ACCURACY)


OwnEnd = tuple[Formula, Expression, tuple[Reference, ...]]


def _step(ends: Ends, _: str, end: End) -> OwnEnd:
    """The spread of published steps of the class, narrower where a caller or a calibration measured some."""
    workload, sign = ends.resolved.workload, "-" if end == "low" else ""
    name = step.class_of(workload)
    residual = step.RESIDUALS[name]
    waiting = step.waiting_fraction({part.kind: part.seconds for part in ends.estimate.step.parts})
    usual = residual * step.spread_scale(waiting)
    inputs: Inputs = {"step_seconds": ends.estimate.step.step_seconds.value, "step_residual": residual}
    inputs |= {"spread_scale": step.spread_scale(waiting), "least_residual": step.LEAST_RESIDUAL}
    spread = "step_residual * spread_scale"
    known = own_spread_fraction(workload.calibrated_steps, usual)
    own = own_spread_fraction(workload.cluster.measured_steps, known)
    if own != usual:
        inputs["own_share"], spread = own / usual, f"{spread} * own_share"
    text = f"step_seconds * exp({sign}max(least_residual, {spread}))"
    note = _note(f"`{name}`", f"its published steps lie within a factor of exp({residual})")
    return step.step_interval, Expression(text, inputs), (note,)


def _allocated(ends: Ends, _: str, end: End) -> OwnEnd:
    workload = ends.resolved.workload
    stack, model = device.class_of(workload.software.name, is_sparse=bool(workload.model.num_experts))
    residual = device.RESIDUALS[stack, model]
    inputs: Inputs = {
        "allocated_peak_bytes": ends.estimate.memory.allocated_peak_bytes.value,
        "memory_residual": residual,
    }
    note = _note(f"`{stack}, {model}`", f"its published peaks lie within a factor of exp({residual})")
    text = f"allocated_peak_bytes * exp({'-' if end == 'low' else ''}memory_residual)"
    return device.allocated_interval, Expression(text, inputs), (note,)


def _reserved(ends: Ends, _: str, end: End) -> OwnEnd:
    workload, allocated = ends.resolved.workload, ends.estimate.memory.allocated_peak_bytes
    low, middle, high = device.reserved_shares(workload)
    inputs: Inputs = {
        "reserved_peak_bytes": ends.estimate.memory.reserved_peak_bytes.value,
        "allocated_peak_bytes": allocated.value,
        "allocated_peak_end_bytes": getattr(allocated, end),
        "share": middle,
        "share_at_end": low if end == "low" else high,
    }
    spread = "sqrt(log(allocated_peak_end_bytes / allocated_peak_bytes) ** 2 + log(share_at_end / share) ** 2)"
    text = f"reserved_peak_bytes * exp({'-' if end == 'low' else ''}{spread})"
    return device.reserved_interval, Expression(text, inputs), _allocated(ends, _, end)[2]


def _device(ends: Ends, _: str, end: End) -> OwnEnd:
    memory = ends.estimate.memory
    low, middle, high = device.beside_allocator(ends.resolved.workload)
    inputs: Inputs = {
        "device_peak_bytes": memory.device_peak_bytes.value,
        "reserved_peak_bytes": memory.reserved_peak_bytes.value,
        "reserved_peak_end_bytes": getattr(memory.reserved_peak_bytes, end),
        "context_and_communicator_bytes": middle,
        "context_and_communicator_end_bytes": low if end == "low" else high,
    }
    spread = "sqrt((reserved_peak_end_bytes - reserved_peak_bytes) ** 2"
    spread += " + (context_and_communicator_end_bytes - context_and_communicator_bytes) ** 2)"
    text = f"device_peak_bytes {'-' if end == 'low' else '+'} {spread}"
    return device.device_interval, Expression(text, inputs), _allocated(ends, _, end)[2]


def _hours(ends: Ends, cell: str, end: End) -> OwnEnd:
    """The end that follows from the steps, or that of whole published runs where it is farther."""
    seconds, low = ends.estimate.step.step_seconds, end == "low"
    residual, farther = totals.RUN_RESIDUALS[0 if low else 1], min if low else max
    inputs: Inputs = {
        "gpu_hours": ends.values[f"{cell}.value"].value,
        "step_end_seconds": getattr(seconds, end),
        "step_seconds": seconds.value,
        "run_residual": residual,
    }
    text = f"gpu_hours * {farther.__name__}(step_end_seconds / step_seconds, exp(run_residual))"
    from_steps = getattr(seconds, end) / seconds.value
    note = _step(ends, cell, end)[2]
    if farther(from_steps, exp(residual)) != from_steps:
        low_end, high_end = totals.RUN_RESIDUALS
        text_of = (
            f"80 % of published runs took from exp({low_end}) to exp({high_end}) of the GPU-hours predicted for them"
        )
        note = (Reference(kind="measured", text=f"error of whole runs: {text_of}", url=ACCURACY),)
    return totals.run_interval, Expression(text, inputs), note


def _stage_seconds(ends: Ends, cell: str, end: End) -> OwnEnd:
    given, seconds = ends.values[f"{cell}.value"], ends.estimate.step.step_seconds
    inputs: Inputs = {"stage_step_seconds": given.value, "step_end_seconds": getattr(seconds, end)}
    inputs["step_seconds"] = seconds.value
    text = "stage_step_seconds * step_end_seconds / step_seconds"
    return given.formula, Expression(text, inputs), _step(ends, cell, end)[2]


_OWN = {
    "step.step_seconds": _step,
    "memory.allocated_peak_bytes": _allocated,
    "memory.reserved_peak_bytes": _reserved,
    "memory.device_peak_bytes": _device,
    "totals.gpu_hours": _hours,
    "gpu_hours": _hours,
    "step_seconds": _stage_seconds,
}
"""Ends that an error makes; all others follow from these."""
