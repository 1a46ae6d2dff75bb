"""Lists and details of calibrations, with their errors."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from service.calibration.device_fit import PartError
from service.catalogue.rows import Scope
from service.errors import NotFound
from service.estimator.constants import DeviceCalibration
from service.estimator.question import DESCRIBED
from service.store import Engine
from service.store.keys import Caller
from service.store.measurements import Calibration, CalibrationStatus, read_calibration, read_calibrations
from service.tabular.columns import Column, columns_of
from service.tabular.lists import Listed, Record, as_record
from service.validation.forms import Variant
from service.validation.specs import field_names

PATH = "/v1/calibrations"
NEWEST_FIRST = "-created_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSummary:
    """A calibration as tables hold it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    id: str
    """What it is read by, and what answers name as versions.calibration."""
    status: CalibrationStatus
    """draft, promoted (it holds for its GPU) or retired."""
    gpu: str | None
    """Catalogue name of the device; null where the catalogue does not hold it, so that no answer could rest on it."""
    device: str
    """Name of the device."""
    note: str
    """Note on it; empty where none was given."""
    measurements: int
    """Measurements that it was fitted on."""
    held_out_fraction: float | None
    """Mean error, as a share of what was measured, on what had no part in the fit; null where nothing was held out."""
    before_fraction: float | None
    """The same of what was predicted before."""
    in_sample_fraction: float | None
    """The same of what it was fitted on."""
    formulas: str
    """Version of the formulas that it was fitted with."""
    replaces: str | None
    """Calibration that held when it was fitted: it is compared with that, may take its place alone, and a rollback
    brings it back; null where none did."""
    created_at: str
    """When it was fitted, in UTC."""
    promoted_at: str | None
    """When it was promoted last; null where it never was."""
    retired_at: str | None
    """When it was taken back or given up; null where it was not."""
    owner: str
    """Whose it is."""
    scope: Scope
    """Whose answers rest on it while it is promoted: its owner's, or everyone's, which only an admin can decide."""


CONSTANTS = tuple(name for name in field_names(DeviceCalibration) if name != "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationDetail:
    """What a calibration has more when it is read alone."""

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
    """What stands in the place of published rates."""
    fitted_on: tuple[str, ...]
    """Ids of the measurements that it was fitted on."""


_KEYED = {column.name: column for column in columns_of(CalibrationSummary)}
COLUMNS: tuple[Column, ...] = (_KEYED.pop("id"), *_KEYED.values())
"""Columns of the list, the key first."""


def listed_calibrations(engine: Engine, caller: Caller) -> Listed:
    """List of calibrations: of the caller, and all that were in effect for everyone."""
    return Listed(COLUMNS, map(summary_of, read_calibrations(engine, caller.visible_owner)), sort=NEWEST_FIRST)


def find_calibration(engine: Engine, caller: Caller, calibration_id: str) -> Calibration:
    """One calibration of the caller, or one that was in effect for everyone, because answers name it."""
    found = read_calibration(engine, calibration_id)
    if found is None or not (is_for_everyone(found) or caller.reaches(found.owner)):
        raise NotFound(f"there is no calibration of this id; GET {PATH} lists the ids")
    return found


def is_for_everyone(calibration: Calibration) -> bool:
    """Whether a calibration is or was in effect for everyone, so that every caller may read it."""
    return calibration.scope == "everyone" and calibration.promoted_at is not None


def find_own(engine: Engine, caller: Caller, calibration_id: str) -> Calibration:
    """One calibration that the caller may change."""
    found = find_calibration(engine, caller, calibration_id)
    if not caller.reaches(found.owner):
        raise NotFound("no calibration of yours has this id; one of others is changed by its owner, or by an admin")
    return found


def calibration_record(calibration: Calibration) -> Record:
    """A calibration as a resource."""
    return {
        **as_record(COLUMNS, summary_of(calibration)),
        "parts": calibration.parts,
        "constants": calibration.constants,
        "fitted_on": calibration.fitted_on,
    }


def summary_of(calibration: Calibration) -> CalibrationSummary:
    """A calibration as a row of a table."""
    same: dict[str, Any] = {name: getattr(calibration, name) for name in _SAME}
    return CalibrationSummary(**same, measurements=len(calibration.fitted_on))


_SAME = {one.name for one in fields(CalibrationSummary)} & {one.name for one in fields(Calibration)}
"""Fields of both."""
