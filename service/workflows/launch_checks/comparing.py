"""How does what was measured stand beside what was predicted? Joined by probe, operation and shape."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.answers.launch_checks import Compared, Measured, ProbeAnswer
from service.calibration.records import Measurement, ProbeName, ProbeRecord
from service.workflows.launch_checks.items import Expected


def compared_probe(record: ProbeRecord, expected: Sequence[Expected]) -> ProbeAnswer:
    """What came of a probe, each measurement beside its prediction.

    Args:
        record: what the worker told
        expected: what the check expected

    Returns:
        the probe as the answer tells it
    """
    own = [one for one in expected if one.probe == record.probe]
    return ProbeAnswer(
        probe=record.probe,
        status=record.status,
        reason=record.reason,
        done_fraction=1.0 if record.status == "succeeded" else 0.0,
        seconds=record.seconds,
        measurements=tuple(_compared(measurement, own) for measurement in record.measurements),
        summary=record.summary,
    )


def _compared(measurement: Measurement, expected: Sequence[Expected]) -> Compared:
    found = next((one for one in expected if _is_of(measurement, one)), None)
    predicted = None if found is None else found.predicted
    return Compared(
        operation=measurement.operation,
        shape=measurement.shape,
        quantity=measurement.quantity,
        measured=Measured(
            low=measurement.low, value=measurement.value, high=measurement.high, repeats=measurement.repeats
        ),
        predicted=predicted,
        ratio=None if predicted is None or not predicted.value else measurement.value / predicted.value,
        count=None if found is None else found.count,
        relative_error_fraction=measurement.relative_error_fraction,
    )


def _is_of(measurement: Measurement, expected: Expected) -> bool:
    same = measurement.operation == expected.operation and measurement.quantity == expected.quantity
    return same and _holds(measurement.shape, expected.shape)


def _holds(shape: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in shape and shape[name] == value for name, value in wanted.items())


def prediction_of(probe: ProbeName, measurement: Measurement, expected: Sequence[Expected]) -> float | None:
    """What was predicted of a measurement.

    Args:
        probe: which probe measured it
        measurement: the measurement
        expected: what the check expected

    Returns:
        the prediction, in the unit of the measurement; None where there was none
    """
    own = (one for one in expected if one.probe == probe and _is_of(measurement, one))
    found = next(own, None)
    return None if found is None or found.predicted is None else found.predicted.value


def slowness(compared: Sequence[Compared], *, at_high: bool = False) -> float | None:
    """How many times as slow measurements are as predicted, each by the share of a step that it takes.

    Args:
        compared: measurements of one probe
        at_high: over the upper ends of the predictions, not over their values

    Returns:
        measured over predicted time, above 1 where it is slower; None where nothing was predicted

    >>> from service.estimator.interval import Interval
    >>> one = Compared(operation="copy", shape={}, quantity="bytes_per_s", ratio=0.5, count=None,
    ...                measured=Measured(low=1.0, value=1.0, high=1.0, repeats=3),
    ...                predicted=Interval(1.5, 2.0, 2.5, "analytic"), relative_error_fraction=None)
    >>> slowness([one]), slowness([one], at_high=True)
    (2.0, 1.5)
    """
    took = planned = 0.0
    weighed = [one for one in compared if one.count] or compared
    for one in weighed:
        if one.predicted is None or one.measured.value <= 0 or one.quantity == "bytes":
            continue
        times = one.count or 1.0
        if one.quantity == "seconds":
            took += times * one.measured.value
            planned += times * (one.predicted.high if at_high else one.predicted.value)
        else:
            took += times / one.measured.value
            planned += times / (one.predicted.low if at_high else one.predicted.value)
    return took / planned if planned else None
