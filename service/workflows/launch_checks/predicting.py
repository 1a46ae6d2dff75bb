"""What do formulas say of a measurement before it is taken? With the spread that they have, for the device it is on."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import exp

from service.calibration.observed import Observed
from service.calibration.predicted import predicted_value
from service.calibration.records import Environment, Measurement, ProbeName
from service.estimator.device_calibration import calibration_of
from service.estimator.gpu import Gpu
from service.estimator.interval import Basis, Interval
from service.workflows.launch_checks.elementwise import predicted_seconds
from service.workflows.launch_checks.items import Expected

LAPLACE_SCALE = 1.6
"""The 80 % end of a Laplace distribution over its mean distance. Source: definition, ln 5."""

SPREAD_FRACTIONS: Mapping[ProbeName, float] = {
    "gemm": 0.08 * LAPLACE_SCALE,
    "attention": 0.06 * LAPLACE_SCALE,
    "collective": 0.125 * LAPLACE_SCALE,
    "bandwidth": 0.06,
    "elementwise": 0.3,
}
"""80 % of measurements lie within exp(-s) and exp(s) of a prediction.
Source: mean errors of shapes, ranks and GPUs that no fit saw, the worst but one of tests/calibration/
test_matrix_products.py (8 %), test_attention_kernels.py (6 %) and test_collectives.py (12.5 %) FIGURES; bandwidth:
efficiency.MEMORY_FRACTION, 0.84 to 0.94; elementwise: a choice, kernels differ in what they read twice."""

CONTEXT_SPREAD_FRACTION = 0.4
"""The same of a context. Source: device.CONTEXT_BYTES, from low to high."""


def with_predictions(expected: Iterable[Expected], gpu: Gpu | None) -> tuple[Expected, ...]:
    """Measurements to come, with what formulas say of them; those of steps have it already.

    Args:
        expected: the measurements
        gpu: the GPU that they are taken on; None for a processor, and for a GPU that the catalogue does not hold

    Returns:
        the same
    """
    if gpu is None:
        return tuple(expected)
    return tuple(one if one.probe == "step" else replace(one, predicted=_predicted(one, gpu)) for one in expected)


def _predicted(expected: Expected, gpu: Gpu) -> Interval | None:
    if expected.probe == "elementwise":
        value: float | None = predicted_seconds({"operation": expected.operation, **expected.shape}, gpu)
    else:
        value = predicted_value(_unmeasured(expected, gpu), gpu)
    if value is None:
        return None
    spread = SPREAD_FRACTIONS.get(expected.probe, CONTEXT_SPREAD_FRACTION)
    basis: Basis = "analytic" if calibration_of(gpu) is None else "calibrated"
    return Interval(value * exp(-spread), value, value * exp(spread), basis)


def _unmeasured(expected: Expected, gpu: Gpu) -> Observed:
    """A measurement as formulas look at one, before it is taken."""
    measurement = Measurement(
        operation=expected.operation, shape=expected.shape, quantity=expected.quantity, value=0.0, low=0.0, high=0.0,
        repeats=0,
    )  # fmt: skip
    place = Environment(kind="cuda", device=gpu.slug, devices=1, memory_bytes=gpu.memory_bytes)
    return Observed(id="", run="", probe=expected.probe, measurement=measurement, environment=place)
