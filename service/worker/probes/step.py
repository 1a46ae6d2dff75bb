"""Memory, step by step, and time of real training steps of a model at full width and reduced depth."""

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from service.calibration.records import Measurement
from service.errors import Refused
from service.worker.probing import CannotRun, ProbeContext, ProbeResult
from service.worker.timing import measurement
from service.worker.training.fields import model_fields
from service.worker.training.memory import Make, Moment, Reading, counted_steps, step_peaks, step_seconds, timeline
from service.worker.training.recipe import step_recipe
from service.worker.training.trainer import trainer_of

STEPS = 3
"""Steps with counted memory: the first has no optimizer states, the third represents all later ones."""

TIMED_STEPS = 5
"""Steps with measured time after them."""

LATE = "out of time before {depths} layers: ask for a longer time budget, a shorter sequence or fewer depths"


def run(parameters: Mapping[str, Any], context: ProbeContext) -> ProbeResult:
    """Train a new model at each depth."""
    try:
        recipe = step_recipe(parameters["recipe"])
        models = {int(depth): model_fields(parameters["model"], int(depth)) for depth in parameters["depths"]}
    except Refused as error:
        raise CannotRun(str(error)) from error
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
        share = time.monotonic() + left_seconds / (len(models) - index)
        found, moments = _measured(partial(trainer_of, model, recipe, context.device), counts, context.device, share)
        measurements += found
        rows += [{"depth": depth, **row} for row in timeline(moments)]
    reason = LATE.format(depths=", ".join(map(str, late))) if late else None
    return ProbeResult(measurements=tuple(measurements), summary={"timeline": rows}, reason=reason)


def _measured(
    make: Make, counts: tuple[int, int], device: str, end_seconds: float
) -> tuple[list[Measurement], list[Moment]]:
    """The measurements of one depth; no further timed step begins after the end."""
    steps, timed = counts
    trainer, moments = counted_steps(make, steps, device)
    depth = len(trainer.model.layers)
    found = [one for step in sorted({1, steps}) for one in _peaks(step_peaks(moments, step), depth, step)]
    if timed:
        seconds = step_seconds(trainer, end_seconds, timed)
        found.append(measurement("step", {"depth": depth}, "seconds", seconds))
    del trainer
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
    return found, moments


def _peaks(peak: Reading, depth: int, step: int) -> list[Measurement]:
    """Peaks of one step: by the GPU's allocator and driver, or live tensors on a processor."""
    shape = {"depth": depth, "step": step}
    if peak.reserved_bytes is None or peak.device_bytes is None:
        return [measurement("live_bytes_peak", shape, "bytes", [peak.peak_bytes])]
    named = {"allocated_peak": peak.peak_bytes, "reserved_peak": peak.reserved_bytes, "device_peak": peak.device_bytes}
    return [measurement(operation, shape, "bytes", [value]) for operation, value in named.items()]
