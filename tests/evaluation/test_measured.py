"""Figures of workers' measurements exclude what they were fitted on."""

from dataclasses import replace

import pytest

from service.calibration.kernels import observed_rows, scored_products
from service.calibration.observations import Observed, counted_peaks
from service.catalogue import shipped_catalogue
from service.cli.reports import measured_lines
from service.evaluation.accuracy import accuracy_of, evaluated_peaks, shipped_measured, with_own_accuracy
from service.validation.reading import to_bytes


def rows(rate: float = 5e10, seconds: float = 1e-3, second_run: float = 1.0) -> tuple[Observed, ...]:
    """Products of a processor of one rate and one fixed cost, in two runs."""
    stated = []
    for run, factor in ((1, 1.0), (2, second_run)):
        for number in range(12):
            sides = {"rows": 512 + 64 * number, "columns": 1024, "inner": 768 + 32 * number}
            value = (2 * sides["rows"] * sides["columns"] * sides["inner"] / rate + seconds) * factor
            stated.append({
                "run": run, "operation": "forward", "name": "p", **sides, "copies": 1, "dtype": "fp32", "value": value,
                "low": value, "high": value, "repeats": 20, "device": "EPYC", "threads": 2, "memory_bytes": 8e9,
                "instructions": "avx2", "torch": "2.13.0",
            })  # fmt: skip
    return observed_rows(stated)


def test_half_of_the_shapes_tell_the_other_half() -> None:
    found = scored_products(rows(second_run=1.05))
    assert found is not None
    assert (found.products, found.runs, found.least_repeats) == (12, 2, 20)
    assert found.held_out_fraction < 0.05 < found.before_fraction
    assert found.noise_fraction == pytest.approx(0.05)


def test_a_half_says_nothing_of_itself() -> None:
    """Where the halves are of different machines, the error is that between them."""
    families = sorted({(one.measurement.shape["rows"], one.family) for one in rows()})
    slow = {family for place, (_, family) in enumerate(families) if place % 2}
    mixed = [
        replace(
            one, measurement=replace(one.measurement, value=one.measurement.value * (2 if one.family in slow else 1))
        )
        for one in rows()
    ]
    found = scored_products(mixed)
    assert found is not None
    assert found.held_out_fraction == pytest.approx((1.0 + 0.5) / 2, rel=0.2)


def test_small_products_are_not_judged() -> None:
    small = [
        replace(one, measurement=replace(one.measurement, shape={**one.measurement.shape, "columns": 16}))
        for one in rows()
    ]
    assert scored_products(small) is None
    found = scored_products([*small, *rows()])
    assert found is not None
    assert found.products == 12


def test_what_ships_is_told_with_its_noise() -> None:
    found = shipped_measured()
    assert len(found.counted_peaks.rows) >= 12
    assert found.counted_peaks.largest_fraction is not None
    assert found.counted_peaks.largest_fraction <= 0.03
    assert found.products is not None
    assert found.products.least_repeats >= 20
    assert found.products.held_out_fraction <= 0.15
    assert found.products.noise_fraction <= 0.10
    assert found.own is None
    shipped = to_bytes(accuracy_of([], shipped_catalogue()))
    assert with_own_accuracy(shipped, b"null") == shipped
    stated = "\n".join(measured_lines(found))
    assert f"{found.products.noise_fraction:.1%}" in stated
    assert f"{found.counted_peaks.largest_fraction:.1%}" in stated


WITHIN = 0.03


def test_every_counted_peak_is_predicted() -> None:
    evaluations = evaluated_peaks()
    assert {one.model for one in evaluations} == {"gpt2-124m", "smollm2-135m", "qwen3-0.6b"}
    assert {(one.layers, one.step) for one in evaluations} == {(1, 1), (1, 3), (2, 1), (2, 3)}
    far = [one for one in evaluations if abs(one.error_fraction) > WITHIN]
    assert not far


def test_counted_peaks_name_their_source() -> None:
    assert all(one.source.startswith("own measurement: ") and "torch" in one.source for one in counted_peaks())
