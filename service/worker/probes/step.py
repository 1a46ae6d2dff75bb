"""Memory (of the allocator; on a processor of the profiler) and time of training steps at full width and less depth."""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from service.calibration.records import Measurement
from service.worker.decoder import Trainer, trainer_of
from service.worker.probing import ProbeContext, ProbeResult, elapsed_seconds, measurement
from service.worker.supported import step_model, step_recipe

MARK = "traincost mark "
"""Prefix of the names of marks in a profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Bytes of memory at one mark."""

    live_bytes: int
    """Live tensors at the mark, temporaries inside operations included."""
    peak_bytes: int
    """Peak since the mark before."""
    reserved_bytes: int | None = None
    """Reserved by the allocator; None where it reserves nothing."""
    device_bytes: int | None = None
    """In use on the device by all processes; None without a device."""


Work = Callable[[Callable[[], None]], None]
"""Work to measure, which calls its argument at each mark."""


def _device_readings(work: Work, device: str) -> list[Reading]:
    """Readings of torch's caching allocator on one GPU."""
    readings: list[Reading] = []

    def mark() -> None:
        free, total = torch.cuda.mem_get_info(device)
        readings.append(
            Reading(
                live_bytes=torch.cuda.memory_allocated(device),
                peak_bytes=torch.cuda.max_memory_allocated(device),
                reserved_bytes=torch.cuda.max_memory_reserved(device),
                device_bytes=total - free,
            )
        )
        torch.cuda.reset_peak_memory_stats(device)

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    work(mark)
    return readings


def _host_readings(work: Work) -> list[Reading]:
    """Readings of torch's profiler, which sees allocations inside operations too; modes of dispatch do not."""
    marks = iter(range(1 << 30))

    def mark() -> None:
        with record_function(f"{MARK}{next(marks)}"):
            pass

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work(mark)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
    return marked_readings(trace["traceEvents"])


def marked_readings(events: Iterable[Mapping[str, Any]]) -> list[Reading]:
    """Readings at the marks of a trace.

    >>> memory = {"name": "[memory]", "ph": "i"}
    >>> events = [memory | {"ts": ts, "args": {"Bytes": given}} for ts, given in ((1, 8), (2, 4), (3, -4), (5, -8))]
    >>> readings = marked_readings([*events, {"name": MARK + "0", "ts": 4}, {"name": MARK + "1", "ts": 6}])
    >>> [(one.live_bytes, one.peak_bytes) for one in readings]
    [(8, 12), (0, 8)]
    """
    relevant = [event for event in events if event.get("name") == "[memory]" or str(event.get("name")).startswith(MARK)]
    readings: list[Reading] = []
    live = peak = 0
    for event in sorted(relevant, key=lambda event: float(event["ts"])):
        if event["name"] == "[memory]":
            live += int(event["args"]["Bytes"])
            peak = max(peak, live)
        else:
            readings.append(Reading(live_bytes=live, peak_bytes=peak))
            peak = live
    return readings


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One mark of training, with tensors by category and all of memory."""

    step: int
    name: str
    """start, forward, loss, backward, clip, optimizer or end."""
    layer: int | None
    tensors: Mapping[str, int]
    reading: Reading


def moment_row(moment: Moment, before: Reading | None) -> dict[str, Any]:
    """One moment by category.

    Formula: activations = live - all categories; temporaries = peak since the mark before - the more of both marks
    Args:
        moment: the moment
        before: the reading before it; None for the first
    Returns: its row of the timeline, in bytes

    >>> tensors, reading = {"parameters_bytes": 40, "input_bytes": 8}, Reading(live_bytes=100, peak_bytes=130)
    >>> now = Moment(step=1, name="loss", layer=None, tensors=tensors, reading=reading)
    >>> row = moment_row(now, Reading(live_bytes=90, peak_bytes=90))
    >>> row["activations_bytes"], row["temporaries_bytes"]
    (52, 30)
    """
    now = moment.reading
    baseline_bytes = now.live_bytes if before is None else max(now.live_bytes, before.live_bytes)
    return {
        "step": moment.step,
        "moment": moment.name,
        "layer": moment.layer,
        **moment.tensors,
        "activations_bytes": now.live_bytes - sum(moment.tensors.values()),
        "temporaries_bytes": now.peak_bytes - baseline_bytes,
        "live_bytes": now.live_bytes,
        "peak_bytes": now.peak_bytes,
    }


def step_peaks(moments: Sequence[Moment], step: int) -> Reading:
    """The peaks of one step, without its first mark."""
    own = [moment.reading for moment in moments if moment.step == step and moment.name != "start"]
    return Reading(
        live_bytes=own[-1].live_bytes,
        peak_bytes=max(one.peak_bytes for one in own),
        reserved_bytes=max((one.reserved_bytes for one in own if one.reserved_bytes is not None), default=None),
        device_bytes=max((one.device_bytes for one in own if one.device_bytes is not None), default=None),
    )


Make = Callable[[], Trainer]
"""Creates a new model in training."""


def counted_steps(make: Make, steps: int, device: str) -> tuple[Trainer, list[Moment]]:
    """Train for some steps; the trainer and the memory at every moment."""
    marks: list[tuple[int, str, int | None, Mapping[str, int]]] = []
    trainers: list[Trainer] = []

    def work(mark: Callable[[], None]) -> None:
        trainer = make()
        trainers.append(trainer)
        for step in range(1, steps + 1):

            def mark_moment(name: str, layer: int | None, step: int = step) -> None:
                marks.append((step, name, layer, trainer.tensor_bytes()))
                mark()

            trainer.step(mark_moment)

    readings = _device_readings(work, device) if torch.device(device).type == "cuda" else _host_readings(work)
    moments = [
        Moment(step=step, name=name, layer=layer, tensors=tensors, reading=reading)
        for (step, name, layer, tensors), reading in zip(marks, readings, strict=True)
    ]
    return trainers[0], moments


STEPS = 3
"""Steps with counted memory: the first has no optimizer states, the third represents all later ones."""

TIMED_STEPS = 5

LATE = "out of time before {depths} layers: ask for a longer time budget, a shorter sequence or fewer depths"


def run(parameters: Mapping[str, Any], context: ProbeContext) -> ProbeResult:
    """Train a new model at each depth."""
    recipe = step_recipe(parameters["recipe"])
    models = {int(depth): step_model(parameters["model"], int(depth)) for depth in parameters["depths"]}
    end_seconds = min(context.end_seconds, time.monotonic() + float(parameters.get("seconds", math.inf)))
    counts = int(parameters.get("steps", STEPS)), int(parameters.get("timed_steps", TIMED_STEPS))
    measurements: list[Measurement] = []
    rows: list[dict[str, Any]] = []
    late: list[int] = []
    for index, (depth, model) in enumerate(models.items()):
        left_seconds = end_seconds - time.monotonic()
        if index and left_seconds <= 0:
            late = list(models)[index:]
            break
        context.report(index / len(models), f"{depth} layers")
        ends = time.monotonic() + left_seconds / (len(models) - index)
        own, moments = _measured(partial(trainer_of, model, recipe, context.device), counts, context.device, ends)
        measurements += own
        before = [None, *(moment.reading for moment in moments[:-1])]
        rows += [
            {"depth": depth, **moment_row(moment, earlier)} for moment, earlier in zip(moments, before, strict=True)
        ]
    reason = LATE.format(depths=", ".join(map(str, late))) if late else None
    return ProbeResult(measurements=tuple(measurements), summary={"timeline": rows}, reason=reason)


def _measured(
    make: Make, counts: tuple[int, int], device: str, end_seconds: float
) -> tuple[list[Measurement], list[Moment]]:
    """The measurements of one depth; no further timed step begins after the end."""
    steps, timed = counts
    trainer, moments = counted_steps(make, steps, device)
    depth = len(trainer.model.layers)
    is_gpu = trainer.device.type == "cuda"
    measurements = [one for step in sorted({1, steps}) for one in _peaks(step_peaks(moments, step), depth, step)]
    seconds: list[float] = []
    while len(seconds) < timed and (not seconds or time.monotonic() < end_seconds):
        if is_gpu:
            torch.cuda.synchronize(trainer.device)
        seconds.append(elapsed_seconds(trainer.step, str(trainer.device)))
    if seconds:
        measurements.append(measurement("step", {"depth": depth}, "seconds", seconds))
    del trainer
    if is_gpu:
        torch.cuda.empty_cache()
    return measurements, moments


def _peaks(peak: Reading, depth: int, step: int) -> list[Measurement]:
    """Peaks of one step: by the GPU's allocator and driver, or live tensors on a processor."""
    operations = {"live_bytes_peak": peak.peak_bytes}
    if peak.reserved_bytes is not None and peak.device_bytes is not None:
        operations = {
            "allocated_peak": peak.peak_bytes, "reserved_peak": peak.reserved_bytes, "device_peak": peak.device_bytes,
        }  # fmt: skip
    shape = {"depth": depth, "step": step}
    return [measurement(operation, shape, "bytes", [value]) for operation, value in operations.items()]
