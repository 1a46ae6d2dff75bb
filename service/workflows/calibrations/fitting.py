"""How does a calibration come about? Fitted on chosen measurements, and judged by those that it never saw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from service import store
from service.calibration.device_fit import fitted_device
from service.calibration.judging import Manner, judged
from service.calibration.observed import Observed
from service.calibration.processors import processor_of
from service.catalogue import Catalogue
from service.catalogue.calibrated import calibrated_gpu
from service.errors import Problem, Refused
from service.estimator import FORMULAS_VERSION
from service.estimator.device_calibration import DeviceCalibration, calibration_of
from service.estimator.gpu import Gpu
from service.store import Calibration, Engine, Measured
from service.workflows.calibrations.body import chosen_of, read_chosen, values_of
from service.workflows.calibrations.steps import Steps, steps_of
from service.workflows.callers import TEAM, Caller
from service.workflows.devices import environment_of, is_possible, observed_of, slug_of
from service.workflows.measurements.keeping import now_text
from service.workflows.wire import adapter_of, digest_of, to_bytes, to_wire


def create_calibration(engine: Engine, catalogue: Catalogue, caller: Caller, body: Mapping[str, Any]) -> Calibration:
    """Fit a calibration on chosen measurements.

    Args:
        engine: the database
        catalogue: the facts
        caller: whose it is
        body: which measurements, and a note

    Returns:
        the calibration, a draft; the one that is there where the same was fitted before

    Raises:
        Refused: a wrong body, nothing to fit on, or a device that nobody knows
        Unreachable: the database does not answer
    """
    chosen = read_chosen(body)
    whose = caller.whose if chosen.measurements else caller.own
    held = store.read_measurements(engine, chosen.measurements or None, whose, values_of(chosen))
    rows = _possible(chosen_of(held, chosen), catalogue)
    fitted = calibration_on(rows, catalogue, _seen_by(engine), steps_of(engine, rows))
    return store.create_calibration(engine, replace(fitted, note=chosen.note, owner=caller.owner))


def _possible(rows: Sequence[Measured], catalogue: Catalogue) -> list[Measured]:
    """The measurements that a device can have made: others are fitted on by nobody, even if they were released."""
    gpu = device_of(rows[0], catalogue)
    found = [row for row in rows if is_possible(row, gpu)]
    if not found:
        message = "no device can have made any of the measurements that are chosen, so nothing is fitted on them"
        fix = "see their reasons at GET /v1/measurements, and measure again"
        raise Refused(Problem(field="", code="nothing_chosen", message=message, fix=fix))
    return found


def calibration_on(
    rows: Sequence[Measured], catalogue: Catalogue, seen_by: Callable[[str], frozenset[str]], steps: Steps
) -> Calibration:
    """The calibration that fits some measurements of one device.

    Args:
        rows: the measurements
        catalogue: the facts
        seen_by: ids of the measurements that a calibration was fitted on
        steps: what step probes among them trained

    Returns:
        the calibration, a draft

    Raises:
        Refused: nobody knows the device, or formulas speak of none of the measurements
    """
    gpu = device_of(rows[0], catalogue)
    observed = [observed_of(row) for row in rows]
    constants = fitted_device(observed, gpu, "", steps.on)
    if constants.is_empty:
        message = "formulas speak of none of these measurements alone, so nothing can be fitted on them"
        fix = "choose measurements of gemm, attention, bandwidth, collective, context, or a launch check's step"
        raise Refused(Problem(field="probes", code="nothing_to_fit", message=message, fix=fix))
    before = before_with(rows[0], catalogue, seen_by, steps)
    judgement = judged(observed, gpu, before, Manner(predict=steps.predict, steps_on=steps.on))
    told = {name: value for name, value in asdict(constants).items() if name != "id"}
    ids = tuple(sorted(row.id for row in rows))
    return Calibration(
        id=f"cal_{digest_of(to_bytes([told, ids, FORMULAS_VERSION]))}",
        status="draft",
        gpu=slug_of(rows[0], catalogue),
        device=rows[0].device,
        note="",
        held_out_fraction=judgement.held_out_fraction,
        before_fraction=judgement.before_fraction,
        in_sample_fraction=judgement.in_sample_fraction,
        parts=tuple(to_wire(part) for part in judgement.parts),
        constants=to_wire(told),
        fitted_on=ids,
        formulas=FORMULAS_VERSION,
        replaces=_held_by(rows[0], catalogue),
        created_at=now_text(),
        promoted_at=None,
        retired_at=None,
        owner=TEAM,
    )


def _held_by(row: Measured, catalogue: Catalogue) -> str | None:
    """The calibration that holds for a device now."""
    slug = slug_of(row, catalogue)
    known = None if slug is None else calibration_of(calibrated_gpu(slug, catalogue))
    return None if known is None else known.id


def device_of(row: Measured, catalogue: Catalogue) -> Gpu:
    """The device of a measurement, as its data sheet has it.

    Args:
        row: a measurement
        catalogue: the facts

    Returns:
        the catalogue's GPU; for a processor what its threads would do

    Raises:
        Refused: it is a GPU that the catalogue does not hold
    """
    slug = slug_of(row, catalogue)
    if slug is not None:
        return catalogue.gpus[slug].gpu
    if row.kind == "cpu":
        return processor_of(environment_of(row))
    message = "the catalogue holds no GPU of the device's name, so there is no peak to measure rates by"
    fix = "create the GPU at POST /v1/gpus with a slug of the words of this name, and fit again"
    raise Refused(Problem(field="device", code="unknown_device", message=message, fix=fix))


def before_with(
    row: Measured, catalogue: Catalogue, seen_by: Callable[[str], frozenset[str]], steps: Steps
) -> Callable[[Observed], float | None]:
    """What is predicted of a device's measurements now, by constants that never saw them.

    Args:
        row: one of its measurements
        catalogue: the facts
        seen_by: ids of the measurements that a calibration was fitted on
        steps: what step probes among them trained

    Returns:
        what predicts: the calibration that holds, or published rates for what that was fitted on
    """
    plain, slug = device_of(row, catalogue), slug_of(row, catalogue)
    now = plain if slug is None else calibrated_gpu(slug, catalogue)
    known = calibration_of(now)
    seen = frozenset() if known is None else seen_by(known.id)
    return lambda observed: steps.predict(observed, plain if observed.id in seen else now)


def constants_of(calibration: Calibration) -> DeviceCalibration:
    """What stands in the place of published rates.

    Args:
        calibration: a calibration

    Returns:
        its constants under its id
    """
    told = {**calibration.constants, "id": calibration.id}
    found: DeviceCalibration = adapter_of(DeviceCalibration).validate_python(told)
    return found


def _seen_by(engine: Engine) -> Callable[[str], frozenset[str]]:
    def seen(calibration_id: str) -> frozenset[str]:
        found = store.read_calibration(engine, calibration_id)
        return frozenset() if found is None else frozenset(found.fitted_on)

    return seen
