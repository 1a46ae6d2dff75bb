"""Lists and details of calibrations, with their errors."""

from dataclasses import dataclass
from typing import Annotated, Any

from service.calibration.device_fit import PartError
from service.errors import NotFound
from service.estimator.constants import DeviceCalibration
from service.store import Engine
from service.store.keys import Caller
from service.store.measurements import Calibration, read_calibration, read_calibrations
from service.tabular.columns import Column, columns_of
from service.tabular.lists import Listed, Record, as_record
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
"""Columns of the list, the key first."""


def listed_calibrations(engine: Engine, caller: Caller) -> Listed:
    """List of calibrations: of the caller, and all that were in effect for everyone."""
    return Listed(COLUMNS, read_calibrations(engine, caller.visible_owner), sort=NEWEST_FIRST)


def find_calibration(engine: Engine, caller: Caller, calibration_id: str) -> Calibration:
    """One calibration of the caller, or one that was in effect for everyone, because answers name it."""
    calibration = read_calibration(engine, calibration_id)
    if calibration is None or not (is_for_everyone(calibration) or caller.reaches(calibration.owner)):
        raise NotFound(f"there is no calibration of this id; GET {PATH} lists the ids")
    return calibration


def is_for_everyone(calibration: Calibration) -> bool:
    """Whether a calibration is or was in effect for everyone, so that every caller may read it."""
    return calibration.scope == "everyone" and calibration.promoted_at is not None


def find_changeable_calibration(engine: Engine, caller: Caller, calibration_id: str) -> Calibration:
    """One calibration that the caller may change."""
    calibration = find_calibration(engine, caller, calibration_id)
    if not caller.reaches(calibration.owner):
        raise NotFound("no calibration of yours has this id; one of others is changed by its owner, or by an admin")
    return calibration


def calibration_record(calibration: Calibration) -> Record:
    """A calibration as a resource."""
    return {
        **as_record(COLUMNS, calibration),
        "parts": calibration.parts,
        "constants": calibration.constants,
        "fitted_on": calibration.fitted_on,
    }
