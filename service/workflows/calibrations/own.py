"""What does a question become once its own device was measured? The same question, with those rates."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from service.calibration.device_fit import StepsOn, fitted_device
from service.calibration.doubts import doubt_of
from service.calibration.observed import Observed, observed_in
from service.calibration.physics import impossible
from service.calibration.records import ProbeRecord
from service.estimator.device_calibration import DeviceCalibration, calibrated, calibration_of
from service.estimator.question import Question
from service.estimator.software import software_of
from service.workflows.wire import digest_of, to_bytes

OWN = "own"
"""What measurements of the question's own device are called, as a run."""


def with_measured(question: Question, records: Sequence[ProbeRecord], steps_on: StepsOn | None = None) -> Question:
    """A question with what was measured of its GPU in the place of published rates, and of a calibration's.

    What a processor did says nothing of a GPU, and what a slice of one, a throttled or a shared one did too little:
    such records change nothing, and neither do steps of other training software.

    Args:
        question: the question
        records: what came of probes on its GPU
        steps_on: whole steps among them, each beside what is predicted of it on a GPU; None where nobody knows what ran

    Returns:
        the question; the same where nothing was measured that formulas speak of
    """
    observed = [one for one in observed_in(records, OWN) if _counts(one) and impossible(one, question.gpu) is None]
    known = calibration_of(question.gpu)
    before = known.id if known is not None else None
    name = f"own_{digest_of(to_bytes([before, [asdict(record) for record in records]]))}"
    fitted = fitted_device(observed, calibrated(question.gpu, None), name)
    told = fitted if known is None else _beside(fitted, known)
    if steps_on is not None:
        software = software_of(question.recipe)
        timed = steps_on(observed, calibrated(question.gpu, replace(told, steps=())))
        steps = tuple(
            one for one in timed if (one.stack, one.implementation) == (software.name, software.implementation)
        )
        told = replace(told, steps=steps or told.steps)
        fitted = replace(fitted, steps=steps)
    return question if fitted.is_empty else replace(question, gpu=calibrated(question.gpu, told))


def _counts(one: Observed) -> bool:
    return one.environment.kind != "cpu" and doubt_of(one.environment) is None


def _beside(fitted: DeviceCalibration, known: DeviceCalibration) -> DeviceCalibration:
    """What was measured now, and of what was not, what was known before."""
    formats, kernels = {one.format for one in fitted.matrix}, {one.kernel for one in fitted.attention}
    collectives = {one.collective for one in fitted.links}
    return DeviceCalibration(
        id=fitted.id,
        matrix=(*fitted.matrix, *(one for one in known.matrix if one.format not in formats)),
        attention=(*fitted.attention, *(one for one in known.attention if one.kernel not in kernels)),
        links=(*fitted.links, *(one for one in known.links if one.collective not in collectives)),
        memory_bytes_per_s=fitted.memory_bytes_per_s or known.memory_bytes_per_s,
        context_bytes=fitted.context_bytes or known.context_bytes,
        communicator_bytes=fitted.communicator_bytes or known.communicator_bytes,
        steps=known.steps,
    )
