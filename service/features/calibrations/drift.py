"""Drift of a calibration: its predictions compared with newer measurements."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median
from typing import Any, ClassVar

from service.catalogue import Catalogue
from service.estimator.constants import calibrated
from service.estimator.question import DESCRIBED
from service.features.calibrations.fitting import Steps, constants_of, device_of, steps_of
from service.features.calibrations.lists import find_calibration
from service.store import Engine
from service.store.keys import Caller
from service.store.measurements import Calibration, Measured, measurements_outside_quarantine
from service.validation.devices import is_possible, observation_of

DRIFTING = 2.0
"""Multiple of the held-out error at which a device has changed. Source: a choice."""

LEAST_ERROR_FRACTION = 0.03
"""Errors below this are noise. Source: a choice; runs of one machine differ by 1 to 3 %."""

LEAST_MEASUREMENTS = 3
"""Fewest newer measurements of a probe that can show a drift. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationDriftPart:
    """How far predictions of one probe are off now."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    probe: str
    """The probe."""
    measurements: int
    """Newer measurements that were predicted."""
    error_fraction: float
    """Mean error on them, as a share of what was measured."""
    bias_fraction: float
    """Median of measured over predicted, less one: above zero where more was measured than predicted."""
    held_out_fraction: float | None
    """Mean error on held-out measurements when it was fitted; null where none were held out."""
    uncalibrated_fraction: float
    """Mean error of published rates on the newer measurements."""
    is_drifting: bool
    """Whether the error has more than doubled, beyond what runs differ by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationDrift:
    """Whether a calibration still holds."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    calibration: str
    """Its id."""
    status: str
    """draft, promoted or retired."""
    since: str
    """When it was fitted: only what was measured later and had no part in it counts, in UTC."""
    measurements: int
    """Newer measurements of its device that count."""
    is_drifting: bool
    """Whether any probe is drifting."""
    parts: tuple[CalibrationDriftPart, ...]
    """By probe."""


def drift_of(engine: Engine, catalogue: Catalogue, caller: Caller, calibration_id: str) -> CalibrationDrift:
    """Compare a calibration with newer measurements."""
    calibration = find_calibration(engine, caller, calibration_id)
    owner = calibration.owner if caller.sees_all else caller.owner
    fitted_on = set(calibration.fitted_on)
    since = datetime.fromisoformat(calibration.created_at)
    newer = [
        row
        for row in measurements_outside_quarantine(engine, owner, calibration.device, since)
        if row.id not in fitted_on
    ]
    newer = [row for row in newer if is_possible(row, device_of(row, catalogue))]
    steps = steps_of(engine, newer)
    parts = tuple(
        part
        for probe in sorted({row.probe for row in newer})
        if (part := _drift_part(probe, newer, calibration, catalogue, steps)) is not None
    )
    return CalibrationDrift(
        calibration=calibration.id,
        status=calibration.status,
        since=calibration.created_at,
        measurements=len(newer),
        is_drifting=any(part.is_drifting for part in parts),
        parts=parts,
    )


def _drift_part(
    probe: str, newer: Sequence[Measured], calibration: Calibration, catalogue: Catalogue, steps: Steps
) -> CalibrationDriftPart | None:
    """Errors of one probe; None if the calibration does not change its predictions."""
    uncalibrated = device_of(newer[0], catalogue)
    gpu = calibrated(uncalibrated, constants_of(calibration))
    pairs = [
        (row.value, predicted, published)
        for row in newer
        if row.probe == probe
        and (predicted := steps.predict(observation_of(row), gpu)) is not None
        and (published := steps.predict(observation_of(row), uncalibrated)) is not None
    ]
    if all(predicted == published for _, predicted, published in pairs):
        return None
    error = fmean(abs(predicted / value - 1) for value, predicted, _ in pairs)
    held_out = next((part["held_out_fraction"] for part in calibration.parts if part["probe"] == probe), None)
    limit = max(LEAST_ERROR_FRACTION, DRIFTING * (held_out or 0.0))
    return CalibrationDriftPart(
        probe=probe,
        measurements=len(pairs),
        error_fraction=error,
        bias_fraction=median(value / predicted for value, predicted, _ in pairs) - 1,
        held_out_fraction=held_out,
        uncalibrated_fraction=fmean(abs(published / value - 1) for value, _, published in pairs),
        is_drifting=len(pairs) >= LEAST_MEASUREMENTS and error > limit,
    )
