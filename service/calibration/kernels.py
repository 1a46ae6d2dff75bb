"""Published matrix products of processors, and errors of their predictions once half of the shapes are measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import fmean
from typing import Any

from service.calibration.device_fit import fitted_device
from service.calibration.observations import Observed, predicted_value, processor_of
from service.calibration.records import Environment, Measurement
from service.calibration.tables import shipped_table
from service.estimator.constants import calibrated
from service.estimator.question import Documented

SIDES = ("rows", "columns", "inner", "copies")

LEAST_FLOP = 0.5e9
"""Least size of a scored product: smaller ones are over before a processor has settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProducts(Documented):
    """How near predictions of matrix products come on a processor, once half of the shapes were measured."""

    device: str
    """The processor."""
    threads: int
    """Threads that computed."""
    products: int
    """Products of at least 0.5 GFLOP, each measured in every run."""
    runs: int
    """Runs."""
    least_repeats: int
    """Repeats of which the median was taken, at least."""
    held_out_fraction: float
    """Mean error: shapes of one half predicted by constants of the other."""
    before_fraction: float
    """The same before anything was measured, by the number of threads alone."""
    noise_fraction: float
    """Mean distance of the medians of two runs of a product."""


def shipped_products() -> tuple[Observed, ...]:
    """The products that the package ships."""
    return observed_rows(shipped_table("processor_products"))


def observed_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Observed, ...]:
    """Rows of a table of products as measurements."""
    results = []
    for number, row in enumerate(rows):
        sides = {name: int(row[name]) for name in SIDES}
        measured = Measurement(
            operation=row["operation"],
            shape={"name": row["name"], **sides, "dtype": row["dtype"]},
            quantity="seconds",
            **{name: float(row[name]) for name in ("value", "low", "high")},
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
        results.append(Observed(str(number), str(row["run"]), "gemm", measured, environment))
    return tuple(results)


def scored_products(observed: Sequence[Observed]) -> MeasuredProducts | None:
    """Errors of predictions from half of the shapes, every other family by FLOP; None without two halves."""
    scored = [one for one in observed if _flop(one) >= LEAST_FLOP]
    families = sorted({(_flop(one), one.family) for one in scored})
    first = {family for place, (_, family) in enumerate(families) if place % 2 == 0}
    halves = [one for one in scored if one.family in first], [one for one in scored if one.family not in first]
    if not all(halves):
        return None
    plain = processor_of(scored[0].environment)
    after: list[float] = []
    before: list[float] = []
    for held_out, seen in (halves, halves[::-1]):
        fitted = calibrated(plain, fitted_device(seen, plain, "half"))
        for one in held_out:
            for errors, gpu in ((after, fitted), (before, plain)):
                errors.append(abs((predicted_value(one, gpu) or 0.0) / one.measurement.value - 1))
    medians: dict[object, list[float]] = {}
    for one in sorted(scored, key=lambda one: one.run):
        shape, operation = one.measurement.shape, one.measurement.operation
        medians.setdefault((operation, *(shape[name] for name in SIDES)), []).append(one.measurement.value)
    return MeasuredProducts(
        device=scored[0].environment.device,
        threads=scored[0].environment.threads or 1,
        products=len(medians),
        runs=len({one.run for one in scored}),
        least_repeats=min(one.measurement.repeats for one in scored),
        held_out_fraction=fmean(after),
        before_fraction=fmean(before),
        noise_fraction=fmean(abs(values[1] / values[0] - 1) for values in medians.values() if len(values) > 1),
    )


def _flop(one: Observed) -> float:
    shape = one.measurement.shape
    return 2.0 * prod(float(shape[name]) for name in SIDES)
