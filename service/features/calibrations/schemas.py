"""Requests for a calibration: measurements by id, or all of a device that pass some filters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Len

from service.calibration.records import ProbeName
from service.catalogue.rows import Scope
from service.errors import Problem, Refused
from service.estimator.question import Name, Strict
from service.features.measurements.importing import parse_moment
from service.store.measurements import Measured
from service.validation.json_text import checked_texts
from service.validation.reading import read_spec

MOST_IDS = 10_000
"""Most ids of a request. Source: a choice; fifty launch checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest(Strict):
    """Measurements to fit on; those in quarantine are left out, however they were chosen."""

    measurements: Annotated[tuple[Name, ...], Len(0, MOST_IDS)] = ()
    """Their ids; those that pass the filters where empty."""
    gpu: Name | None = None
    """Catalogue name of the device."""
    device: Name | None = None
    """Name of the device as its driver tells it, or of the processor."""
    probes: Annotated[tuple[ProbeName, ...], Len(0, 8)] = ()
    """Probes; all where empty."""
    runs: Annotated[tuple[Name, ...], Len(0, 1000)] = ()
    """Runs; all where empty."""
    since: Name | None = None
    """Only what was measured from this moment on, RFC 3339."""
    note: Annotated[str, Len(0, 1000)] = ""
    """What to know about the calibration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRequest(Strict):
    """For whom a calibration is to hold."""

    scope: Scope = "owner"
    """Whose answers rest on it: its owner's, or everyone's, which only an admin may decide."""


def read_chosen(body: Mapping[str, Any]) -> CalibrationRequest:
    """Parse a selection of measurements."""
    chosen = read_spec(CalibrationRequest, checked_texts(body), "")
    if not (chosen.measurements or chosen.gpu or chosen.device or chosen.runs):
        message = "nothing says which device is to be calibrated, and one calibration is of one device"
        fix = "give gpu, device, runs or the ids of measurements"
        raise Refused(Problem(field="gpu", code="required", message=message, fix=fix))
    return chosen


def values_of(chosen: CalibrationRequest) -> dict[str, tuple[str, ...]]:
    """Column values of a selection."""
    values = {"probe": chosen.probes, "run": chosen.runs, "gpu": (chosen.gpu,), "device": (chosen.device,)}
    given = {name: tuple(one for one in some if one is not None) for name, some in values.items()}
    return {name: some for name, some in given.items() if some}


def chosen_of(rows: Sequence[Measured], chosen: CalibrationRequest) -> list[Measured]:
    """Measurements that a selection matches."""
    ids = set(chosen.measurements)
    missing = len(ids - {row.id for row in rows})
    if missing:
        message = f"{missing} of the {len(ids)} ids are those of no measurement"
        raise Refused(Problem("measurements", "not_found", message, "take ids from GET /v1/measurements"))
    since = None if chosen.since is None else parse_moment(chosen.since)
    found = [
        row
        for row in rows
        if row.quarantined_at is None
        and (not ids or row.id in ids)
        and chosen.gpu in (None, row.gpu)
        and chosen.device in (None, row.device)
        and (not chosen.probes or row.probe in chosen.probes)
        and (not chosen.runs or row.run in chosen.runs)
        and (since is None or parse_moment(row.measured_at) >= since)
    ]
    if not found:
        message = "no measurement that counts is chosen, so there is nothing to fit on"
        fix = "see GET /v1/measurements with the same filters; those in quarantine do not count"
        raise Refused(Problem("", "nothing_chosen", message, fix))
    devices = sorted({(row.device, row.gpu or "") for row in found})
    if len(devices) > 1:
        message = f"measurements of {len(devices)} devices are chosen: {', '.join(name for name, _ in devices[:5])}"
        raise Refused(Problem("device", "several_devices", message, "name one of them as device"))
    return sorted(found, key=lambda row: (row.measured_at, row.id))
