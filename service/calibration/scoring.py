"""Held-out errors of a calibration: runs are left out, or shapes where there is one run.

Every measurement is predicted three times: by constants that never saw its run (or its shape), by those fitted on all
measurements, and by those that held before. One error a probe, and their mean over the probes: a probe of many shapes
counts no more than one of few.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Literal

from service.calibration.device_fit import StepsOn, fitted_device
from service.calibration.observations import Observed, predicted_value
from service.estimator.constants import calibrated
from service.estimator.names import DESCRIBED
from service.estimator.question import Gpu

LeftOut = Literal["run", "shape"]
"""What is held out together."""

MOST_FOLDS = 5
"""Parts that shapes are dealt into where there is one run."""

STEP: Literal["step"] = "step"
"""The probe whose predictions rest on all others, and its operation that is timed."""

SHARED = "bandwidth"
"""The probe whose constant others are predicted with too: memory traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartError:
    """How far predictions of one probe are off, as the mean of |predicted / measured - 1|."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    probe: str
    """The probe."""
    left_out: LeftOut
    """What was held out together."""
    measurements: int
    """Measurements that were predicted."""
    held_out_fraction: float
    """By constants that never saw their run, or their shape."""
    in_sample_fraction: float
    """By constants fitted on all of them."""
    before_fraction: float
    """By constants that held before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationScore:
    """How far predictions of a calibration are off, beside those of before."""

    parts: tuple[PartError, ...]
    """By probe, those of which something could be held out."""
    held_out_fraction: float | None
    """Mean over the probes; null where nothing could be held out."""
    in_sample_fraction: float | None
    """The same, fitted on all."""
    before_fraction: float | None
    """The same, by constants that held before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringOptions:
    """What predicts measurements, and whole steps among them."""

    predict: Callable[[Observed, Gpu], float | None] = predicted_value
    """What is predicted of a measurement on a GPU, in the unit of the measurement."""
    steps_on: StepsOn | None = None
    """Whole steps, each beside what is predicted of it on a GPU; None where steps are not predicted."""


def score_calibration(
    observed: Sequence[Observed],
    gpu: Gpu,
    before: Callable[[Observed], float | None],
    options: ScoringOptions | None = None,
) -> CalibrationScore:
    """How a calibration on some measurements does on those that had no part in it."""
    known = options or ScoringOptions()
    whole = calibrated(gpu, fitted_device(observed, gpu, "whole", known.steps_on))
    result = (_part(probe, observed, gpu, (whole, before, known)) for probe in sorted({one.probe for one in observed}))
    parts = tuple(part for part in result if part is not None)
    return CalibrationScore(
        parts=parts,
        held_out_fraction=fmean(part.held_out_fraction for part in parts) if parts else None,
        in_sample_fraction=fmean(part.in_sample_fraction for part in parts) if parts else None,
        before_fraction=fmean(part.before_fraction for part in parts) if parts else None,
    )


def _part(
    probe: str,
    observed: Sequence[Observed],
    gpu: Gpu,
    known: tuple[Gpu, Callable[[Observed], float | None], ScoringOptions],
) -> PartError | None:
    """The errors of one probe, given the calibration on all measurements and what was predicted before."""
    own = [one for one in observed if one.probe == probe]
    left_out: LeftOut = "run" if len({one.run for one in own}) > 1 else "shape"
    whole, before, options = known
    others = [one for one in observed if one.probe != probe and (probe == STEP or one.probe == SHARED)]
    errors = []
    for training, held_out in held_out_in(own, others, left_out):
        fitted = calibrated(gpu, fitted_device(training, gpu, "kept", options.steps_on))
        operations = {(one.measurement.operation, one.measurement.shape.get("dtype")) for one in training}
        for one in held_out:
            predictions = [options.predict(one, fitted), options.predict(one, whole), before(one)]
            off = [abs(value / one.measurement.value - 1) for value in predictions if value is not None]
            is_fitted = probe == "gemm" or (one.measurement.operation, one.measurement.shape.get("dtype")) in operations
            if is_fitted and len(off) == len(predictions):
                errors.append(off)
    if not errors:
        return None
    held_out_error, in_sample, known_before = (fmean(column) for column in zip(*errors, strict=True))
    return PartError(
        probe=probe,
        left_out=left_out,
        measurements=len(errors),
        held_out_fraction=held_out_error,
        in_sample_fraction=in_sample,
        before_fraction=known_before,
    )


def held_out_in(
    own: Sequence[Observed], shared: Sequence[Observed], left_out: LeftOut
) -> Iterator[tuple[list[Observed], list[Observed]]]:
    """What is kept and what is held out, one time after another."""
    if left_out == "run":
        places: dict[object, object] = {one.run: one.run for one in own}
    else:
        families = sorted({one.family for one in own})
        folds = min(MOST_FOLDS, len(families))
        places = {family: number % folds for number, family in enumerate(families)} if folds > 1 else {}
    for place in dict.fromkeys(places.values()):
        out = [one for one in own if places[one.run if left_out == "run" else one.family] == place]
        gone = {one.id for one in out}
        training = [one for one in (*own, *shared) if one.id not in gone and (left_out == "shape" or one.run != place)]
        yield training, out
