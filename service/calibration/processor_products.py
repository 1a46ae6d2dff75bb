"""How near do matrix products of a processor come to predictions, once half of the shapes were measured?

The package ships products of real layers, each measured in two runs: the noise of the two is what no prediction can be
better than.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import fmean
from typing import Any

from service.calibration.device_fit import fitted_device
from service.calibration.observed import Observed
from service.calibration.predicted import predicted_value
from service.calibration.processors import processor_of
from service.calibration.records import Environment, Measurement
from service.calibration.tables import shipped_table
from service.estimator.constants import calibrated

SIDES = ("rows", "columns", "inner", "copies")

LEAST_FLOP = 0.5e9
"""Products from this size on are judged: smaller ones are over before a processor has settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedProducts:
    """How far predictions of a processor's products are off, each by constants that never saw its shape."""

    device: str
    """The processor."""
    threads: int
    """Threads that computed."""
    products: int
    """Products that were measured, each in every run."""
    runs: int
    """Runs."""
    least_repeats: int
    """Repeats of which the median was taken, at least."""
    held_out_fraction: float
    """Mean error, as a share of what was measured: shapes of one half predicted by constants of the other."""
    before_fraction: float
    """The same before anything was measured, by the number of threads alone."""
    noise_fraction: float
    """Mean distance of the medians of two runs of a product, over the first."""


def shipped_products() -> tuple[Observed, ...]:
    """The products that the package ships.

    Returns:
        one a product and run; none where the table is empty
    """
    return observed_rows(shipped_table("processor_products"))


def observed_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Observed, ...]:
    """Rows of a table of products as measurements.

    Args:
        rows: rows of published/processor_products.csv

    Returns:
        the measurements
    """
    return tuple(_observed(number, row) for number, row in enumerate(rows))


def _observed(number: int, row: Mapping[str, Any]) -> Observed:
    sides = {name: int(row[name]) for name in SIDES}
    measurement = Measurement(
        operation=row["operation"],
        shape={"name": row["name"], **sides, "dtype": row["dtype"]},
        quantity="seconds",
        value=float(row["value"]),
        low=float(row["low"]),
        high=float(row["high"]),
        repeats=int(row["repeats"]),
    )
    environment = Environment(
        kind="cpu",
        device=row["device"],
        devices=1,
        memory_bytes=float(row["memory_bytes"]),
        threads=int(row["threads"]),
        instructions=tuple(row["instructions"].split()),
        torch=row["torch"],
    )
    return Observed(id=str(number), run=str(row["run"]), probe="gemm", measurement=measurement, environment=environment)


def judged_products(observed: Sequence[Observed]) -> JudgedProducts | None:
    """How far predictions are off once half of the shapes were measured.

    Args:
        observed: products of one processor, each in two runs or more

    Returns:
        the errors, every shape predicted by the half that it is not in; None where nothing was measured
    """
    judged = [one for one in observed if _flop(one) >= LEAST_FLOP]
    halves = _halves(judged)
    if not all(halves):
        return None
    plain = processor_of(judged[0].environment)
    after, before = [], []
    for held_out, seen in (halves, halves[::-1]):
        fitted = calibrated(plain, fitted_device(seen, plain, "half"))
        for one in held_out:
            after.append(_error_fraction(predicted_value(one, fitted), one))
            before.append(_error_fraction(predicted_value(one, plain), one))
    things = _by_product(judged)
    return JudgedProducts(
        device=judged[0].environment.device,
        threads=judged[0].environment.threads or 1,
        products=len(things),
        runs=len({one.run for one in judged}),
        least_repeats=min(one.measurement.repeats for one in judged),
        held_out_fraction=fmean(after),
        before_fraction=fmean(before),
        noise_fraction=fmean(abs(values[1] / values[0] - 1) for values in things.values() if len(values) > 1),
    )


def _halves(judged: Sequence[Observed]) -> tuple[list[Observed], list[Observed]]:
    """Every other family of shapes, in the order of their FLOP, so that both halves have small and large ones."""
    families = sorted({(_flop(one), one.family) for one in judged})
    first = {family for place, (_, family) in enumerate(families) if place % 2 == 0}
    return [one for one in judged if one.family in first], [one for one in judged if one.family not in first]


def _by_product(judged: Sequence[Observed]) -> dict[object, list[float]]:
    """The medians of each product, run by run."""
    found: dict[object, list[float]] = {}
    for one in sorted(judged, key=lambda one: one.run):
        shape = one.measurement.shape
        found.setdefault((one.measurement.operation, *(shape[name] for name in SIDES)), []).append(
            one.measurement.value
        )
    return found


def _flop(one: Observed) -> float:
    shape = one.measurement.shape
    return 2.0 * prod(float(shape[name]) for name in SIDES)


def _error_fraction(predicted: float | None, one: Observed) -> float:
    return abs((predicted or 0.0) / one.measurement.value - 1)
