"""Does half of a published set of products make the other half better known, on a GPU that nobody measured before?"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from service.calibration.device_fit import fitted_device
from service.calibration.observations import Observed, predicted_value
from service.calibration.products import MeasuredProduct, measured_products
from service.calibration.records import Environment, Measurement
from service.catalogue import shipped_catalogue
from service.estimator.constants import calibrated
from service.estimator.question import Gpu

PERCENT: dict[tuple[str, str], tuple[float, float]] = {
    ("aiconfigurator", "a100-sxm4-80gb"): (12.2, 4.3),
    ("aiconfigurator", "b200-sxm-180gb"): (7.5, 7.4),
    ("aiconfigurator", "b300-sxm-288gb"): (7.1, 8.6),
    ("aiconfigurator", "gb200-186gb"): (10.7, 8.5),
    ("aiconfigurator", "gb300-279gb"): (5.5, 5.1),
    ("aiconfigurator", "h100-sxm5-80gb"): (7.8, 4.5),
    ("aiconfigurator", "h200-sxm5-141gb"): (7.5, 4.9),
    ("aiconfigurator", "l40s"): (19.6, 7.5),
    ("aiconfigurator", "rtx-pro-6000-blackwell-server"): (13.6, 3.8),
    ("simumax", "a100-pcie-80gb"): (5.4, 4.8),
    ("simumax", "b200-sxm-180gb"): (32.6, 12.0),
}
"""Mean absolute error of bf16 products in percent: by the median of all generations, by constants of the other half.
Those of one GPU are no better: a calibration of it would be refused promotion."""


@pytest.mark.parametrize(("source", "slug"), PERCENT)
def test_errors_of_the_half_that_was_not_seen(source: str, slug: str) -> None:
    gpu = replace(shipped_catalogue().gpus[slug].gpu, slug="new", architecture="new")
    own = [one for one in measured_products() if (one.source_key, one.gpu, one.format) == (source, slug, "bf16")]
    observed = [_observed(one, number) for number, one in enumerate(own)]
    first, second = observed[::2], observed[1::2]
    before = fmean(_error_percent(gpu, rows) for rows in (first, second))
    after = fmean(
        _error_percent(calibrated(gpu, fitted_device(seen, gpu, "half")), unseen)
        for seen, unseen in ((first, second), (second, first))
    )
    assert (before, after) == pytest.approx(PERCENT[source, slug], abs=0.06)


def test_the_errors_fall() -> None:
    fall = [before - after for before, after in PERCENT.values()]
    assert sum(one > 0 for one in fall) == len(fall) - 1
    assert fmean(fall) > 5


def _observed(one: MeasuredProduct, number: int) -> Observed:
    shape = {"rows": one.rows, "columns": one.columns, "inner": one.inner, "copies": one.copies, "dtype": one.format}
    measured = Measurement(
        operation="forward",
        shape=shape,
        quantity="seconds",
        value=one.product_seconds,
        low=one.product_seconds,
        high=one.product_seconds,
        repeats=1,
    )
    environment = Environment(kind="cuda", device="new", devices=1, memory_bytes=8e10)
    return Observed(id=str(number), run=one.source_key, probe="gemm", measurement=measured, environment=environment)


def _error_percent(gpu: Gpu, rows: Sequence[Observed]) -> float:
    return 100 * fmean(abs((predicted_value(one, gpu) or 0.0) / one.measurement.value - 1) for one in rows)
