"""Calibrations: their lists, their promotion, and their drift."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Annotated, Any

from service.calibration.device_fit import PartError
from service.catalogue import EVERYONE, CalibrationRow, Catalogue, Row, Snapshot
from service.catalogue.rows import Scope
from service.errors import Conflict, ForAdmins, NotFound, Problem
from service.estimator import FORMULAS_VERSION
from service.estimator.constants import DeviceCalibration, calibrated
from service.estimator.question import Documented
from service.features.calibrations.fitting import StepPredictor, constants_of, device_of, step_predictor_of
from service.store import Connection, Engine
from service.store.history import History, Rows
from service.store.keys import Caller
from service.store.measurements import (
    Calibration,
    Measured,
    mark_promoted_in,
    mark_retired_in,
    measurements_outside_quarantine,
    read_calibration,
    read_calibrations,
    retire_calibration,
)
from service.tabular.lists import Column, Listed, Record, as_record, columns_of
from service.validation.devices import is_possible, observation_of
from service.validation.forms import Variant
from service.validation.reading import field_names

PATH = "/v1/calibrations"
NEWEST_FIRST = "-created_at"

CONSTANTS = tuple(name for name in field_names(DeviceCalibration) if name != "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationDetail:
    """Fields of a calibration beside those of its list."""

    parts: tuple[PartError, ...]
    """The errors by probe."""
    constants: Annotated[
        Any,
        Variant(
            DeviceCalibration,
            "CalibrationConstants",
            "What was measured of one device; what was not is left out, and formulas go on without it.",
            required=CONSTANTS,
            only=CONSTANTS,
        ),
    ]
    """Constants that replace published rates."""
    fitted_on: tuple[str, ...]
    """Ids of the measurements that it was fitted on."""


_WITHOUT_COUNT = [column for column in columns_of(Calibration) if column.name not in field_names(CalibrationDetail)]
_COUNT_INDEX = [column.name for column in _WITHOUT_COUNT].index("held_out_fraction")
COUNT = Column(
    "measurements",
    lambda row: len(row.fitted_on),
    {"type": "integer", "description": "Measurements that it was fitted on."},
)
COLUMNS = (*_WITHOUT_COUNT[:_COUNT_INDEX], COUNT, *_WITHOUT_COUNT[_COUNT_INDEX:])


def listed_calibrations(engine: Engine, caller: Caller) -> Listed:
    """List of calibrations: of the caller, and all that were in effect for everyone."""
    return Listed(COLUMNS, read_calibrations(engine, caller.visible_owner), sort=NEWEST_FIRST)


def find_calibration(engine: Engine, caller: Caller, calibration_id: str) -> Calibration:
    """One calibration of the caller, or one that was in effect for everyone, because answers name it."""
    calibration = read_calibration(engine, calibration_id)
    if calibration is None or not (is_for_everyone(calibration) or caller.may_access(calibration.owner)):
        raise NotFound(f"there is no calibration of this id; GET {PATH} lists the ids")
    return calibration


def is_for_everyone(calibration: Calibration) -> bool:
    """Whether a calibration is or was in effect for everyone, so that every caller may read it."""
    return calibration.scope == "everyone" and calibration.promoted_at is not None


def find_changeable_calibration(engine: Engine, caller: Caller, calibration_id: str) -> Calibration:
    """One calibration that the caller may change."""
    calibration = find_calibration(engine, caller, calibration_id)
    if not caller.may_access(calibration.owner):
        raise NotFound("no calibration of yours has this id; one of others is changed by its owner, or by an admin")
    return calibration


def calibration_record(calibration: Calibration) -> Record:
    return {
        **as_record(COLUMNS, calibration),
        "parts": calibration.parts,
        "constants": calibration.constants,
        "fitted_on": calibration.fitted_on,
    }


MOST_HELD_OUT_FRACTION = 0.5
"""Held-out mean error above which nothing is promoted, of all probes and of each. Source: a
choice; on a device that is as its data sheet says, published rates alone are off by less, and the worst published GPU
of a fitted kind is 1.3 times as slow as they have it."""

Write = Callable[[Connection], None]
"""Write that accompanies a change of the catalogue."""


def promote(
    engine: Engine, history: History, caller: Caller, calibration_id: str, scope: Scope = "owner"
) -> Calibration:
    calibration = find_changeable_calibration(engine, caller, calibration_id)
    if scope == "everyone" and not caller.sees_all:
        raise ForAdmins(FOR_EVERYONE)
    refusals = reasons_against(calibration)
    if refusals:
        raise Conflict(*refusals)
    row = replace(row_of(calibration), scope=scope)

    def decide(snapshot: Snapshot) -> Rows:
        view = snapshot.everyone if scope == "everyone" else snapshot.view(calibration.owner)
        current = None if calibration.gpu is None else view.calibrations.get(calibration.gpu)
        if current is not None and current.calibration.id == calibration.id and scope == current.holds_for:
            raise Conflict(Problem("", "is_promoted", f"{calibration.id} holds already", "nothing is to be done"))
        outdated = _outdated(calibration, None if current is None else current.calibration.id)
        if outdated is not None:
            raise Conflict(outdated)
        return Rows(put=(row,), drop=_row_of_other_scope(calibration, scope, snapshot))

    def also(connection: Connection, before: Snapshot) -> None:
        current = snapshot_row(calibration, scope, before)
        replaced = None if current is None else current.calibration.id
        mark_promoted_in(connection, calibration, datetime.now(UTC), scope, retires=replaced)

    history.change(caller.owner, decide, also)
    return find_calibration(engine, caller, calibration_id)


def roll_back(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Restore what was in effect before a calibration: another one, or published rates."""
    calibration = find_changeable_calibration(engine, caller, calibration_id)
    before = None if calibration.replaces is None else read_calibration(engine, calibration.replaces)
    if before is not None and calibration.scope != "everyone":  # it does not return where one for everyone holds now
        is_everyones = before.status == "promoted" and before.scope == "everyone"
        before = before if before.owner == calibration.owner and not is_everyones else None
    _withdraw(history, caller, calibration, before)
    return find_calibration(engine, caller, calibration_id)


def retire(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Retire a calibration: a draft, or the one in effect, which the one for everyone then replaces."""
    calibration = find_changeable_calibration(engine, caller, calibration_id)
    if calibration.status == "promoted":
        _withdraw(history, caller, calibration, None)
    elif calibration.status == "draft":
        retire_calibration(engine, calibration.id, datetime.now(UTC))
    return find_calibration(engine, caller, calibration_id)


def reasons_against(calibration: Calibration) -> tuple[Problem, ...]:
    if calibration.gpu is None:
        message = f"no GPU of the catalogue is called {calibration.device}, so no answer could rest on it"
        fix = "create the GPU at POST /v1/gpus with a slug of the words of this name, and fit again"
        return (Problem("", "no_gpu", message, fix),)
    held_out, before = calibration.held_out_fraction, calibration.before_fraction
    if held_out is None or before is None:
        message = "nothing could be held out, so its error on other measurements is unknown"
        return (Problem("", "not_judged", message, "measure more shapes, or a second run, and fit on all of them"),)
    parts = [(str(one["probe"]), one["held_out_fraction"], one["before_fraction"]) for one in calibration.parts]
    worse = [("worse_part", *part) for part in parts if part[1] > part[2]]
    far = [("too_far_off", *part) for part in parts if not part[1] <= MOST_HELD_OUT_FRACTION]
    whole = ("all probes", held_out, before)
    found = [
        *([("not_better", *whole)] if held_out >= before else []),
        *([("too_far_off", *whole)] if not held_out <= MOST_HELD_OUT_FRACTION else []),
        *worse,
        *far,
    ]
    return tuple(Problem("", code, _figures(code, *figures), REFIT) for code, *figures in found)


FOR_EVERYONE = Problem(
    field="scope",
    code="admins_only",
    message="a calibration for everyone changes every caller's answers, so only an admin may promote or take back one",
    fix="promote it for its owner alone, or ask an admin",
)

REFIT = "leave these probes out, measure more shapes or another run, and fit again"
FIT_AGAIN = "fit again on the same measurements at POST /v1/calibrations, which compares with what holds now"
PUBLISHED = "what is published"


def _figures(code: str, what: str, held_out: float, before: float) -> str:
    """How far predictions are off, and what forbids it: a limit, or the calibration before."""
    compared = f"by {100 * before:.1f} % without it"
    if code == "too_far_off":
        most = f"more than {100 * MOST_HELD_OUT_FRACTION:g} %"
        compared = f"nothing holds that is off by {most}, however far off what held before was"
    return f"{what}: predictions of what it never saw are off by {100 * held_out:.1f} %, and {compared}"


def row_of(calibration: Calibration) -> CalibrationRow:
    """Catalogue row of a promoted calibration, always the same."""
    if calibration.gpu is None:
        raise NotFound("this calibration is of no GPU of the catalogue")
    return CalibrationRow(
        gpu=calibration.gpu,
        calibration=constants_of(calibration),
        source=f"{calibration.id}, fitted on {len(calibration.fitted_on)} measurements of {calibration.device}",
        as_of=calibration.created_at[:10],
        verified="yes",
        owner=calibration.owner,
    )


def _withdraw(history: History, caller: Caller, calibration: Calibration, before: Calibration | None) -> None:
    if calibration.scope == "everyone" and calibration.status == "promoted" and not caller.sees_all:
        raise ForAdmins(FOR_EVERYONE)

    def decide(snapshot: Snapshot) -> Rows:
        current = snapshot_row(calibration, calibration.scope, snapshot)
        if current is None or current.calibration.id != calibration.id:
            message = f"{calibration.id} does not hold, so there is nothing to take back"
            raise Conflict(
                Problem("", "not_promoted", message, "GET /v1/calibrations?status=promoted lists what holds")
            )
        if before is None:
            return Rows(drop=(current,))
        again = replace(row_of(before), scope=calibration.scope)
        return Rows(put=(again,), drop=_row_of_other_scope(before, calibration.scope, snapshot))

    def also(connection: Connection, _: Snapshot) -> None:
        moment = datetime.now(UTC)
        mark_retired_in(connection, calibration.id, moment)
        if before is not None:
            mark_promoted_in(connection, before, moment, calibration.scope, retires=None)

    history.change(caller.owner, decide, also)


def snapshot_row(calibration: Calibration, scope: Scope, snapshot: Snapshot) -> CalibrationRow | None:
    """Calibration in effect for the GPU of another, for everyone or for its owner."""
    part = EVERYONE if scope == "everyone" else calibration.owner
    row = None if calibration.gpu is None else snapshot.at((part, (CalibrationRow, calibration.gpu)))
    return row if isinstance(row, CalibrationRow) else None


def _row_of_other_scope(calibration: Calibration, scope: Scope, snapshot: Snapshot) -> tuple[Row, ...]:
    """Row of a calibration in effect in the other scope until promotion: only one scope at a time has it."""
    other = snapshot_row(calibration, "owner" if scope == "everyone" else "everyone", snapshot)
    return () if other is None or other.calibration.id != calibration.id else (other,)


def _outdated(calibration: Calibration, current_id: str | None) -> Problem | None:
    if calibration.formulas != FORMULAS_VERSION:
        message = f"it was fitted with formulas {calibration.formulas}, and {FORMULAS_VERSION} answer now"
        return Problem("", "other_formulas", message, FIT_AGAIN)
    if calibration.replaces != current_id:
        message = f"it was compared with {calibration.replaces or PUBLISHED}, and {current_id or PUBLISHED} holds now"
        return Problem("", "other_before", message, FIT_AGAIN)
    return None


DRIFTING = 2.0
"""Multiple of the held-out error at which a device has changed. Source: a choice."""
LEAST_ERROR_FRACTION = 0.03
"""Errors below this are noise. Source: a choice; runs of one machine differ by 1 to 3 %."""
LEAST_MEASUREMENTS = 3
"""Fewest newer measurements of a probe that can show a drift. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationDriftPart(Documented):
    """How far predictions of one probe are off now."""

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
class CalibrationDrift(Documented):
    """Whether a calibration still holds."""

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
    steps = step_predictor_of(engine, newer)
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
    probe: str, newer: Sequence[Measured], calibration: Calibration, catalogue: Catalogue, steps: StepPredictor
) -> CalibrationDriftPart | None:
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
