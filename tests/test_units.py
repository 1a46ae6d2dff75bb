"""Every measured number has a unit by its name, and every unit says the same amount."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.units import BYTES, COUNT, DIMENSIONS, UNITS, Dimension, dimension_of, in_units, readable

finite = st.floats(-1e308, 1e308)


@pytest.mark.parametrize("dimension", [*DIMENSIONS.values(), COUNT], ids=lambda dimension: dimension.base)
def test_the_base_is_a_unit_and_the_ladder_climbs(dimension: Dimension) -> None:
    assert dimension.scales[dimension.base] == 1
    assert list(dimension.ladder) == sorted(dimension.ladder, key=dimension.scales.__getitem__)
    assert set(dimension.scales) <= UNITS


def test_no_suffix_hides_a_longer_one() -> None:
    for suffix, dimension in DIMENSIONS.items():
        assert dimension_of([f"any_{suffix}"]) is dimension
        assert dimension_of([suffix]) is dimension


@pytest.mark.parametrize(
    ("name", "unit", "amount"),
    [
        ("usable_bytes", "GiB", 2**30), ("usable_bytes", "GB", 10**9), ("usable_bytes", "KiB", 1024),
        ("usable_bytes", "kB", 1000), ("total_flop", "TFLOP", 1e12), ("total_flop", "PFLOP-day", 8.64e19),
        ("total_pflop_days", "EFLOP", 1 / 86_400 * 1000), ("step_seconds", "h", 3600), ("days", "h", 1 / 24),
        ("gpu_hours", "d", 24), ("energy_kwh", "J", 1 / 3.6e6), ("carbon_kg_co2e", "t", 1000),
        ("mfu_fraction", "%", 0.01), ("cost_usd", "MUSD", 1e6), ("peak_flop_per_s", "PFLOP/s", 1e15),
        ("total", "billion", 1e9), ("tokens_per_s_per_gpu", "tokens/d", 1 / 86_400),
    ],
)  # fmt: skip
def test_one_of_a_unit_is_so_much_in_base_units(name: str, unit: str, amount: float) -> None:
    assert isclose(dimension_of([name]).scales[unit], amount, rel_tol=1e-12)


def test_the_nearest_name_with_a_unit_counts() -> None:
    assert dimension_of(["flop", "conventions", "palm"]).base == "FLOP"
    assert dimension_of(["flop", "recompute_fraction"]).base == "1"
    assert dimension_of(["memory", "peak_stage"]) is COUNT


@given(finite)
def test_a_readable_number_is_within_four_digits(value: float) -> None:
    assert isclose(float(readable(value).replace(",", "")), value, rel_tol=5e-4)


@given(st.floats(0, 1e18))
def test_a_quantity_is_said_in_the_largest_unit_that_leaves_a_whole_part(value: float) -> None:
    number, unit = in_units(value, BYTES).split()
    amount = float(number.replace(",", ""))
    assert isclose(amount * BYTES.scales[unit], value, rel_tol=5e-4)
    assert amount <= 1024 or unit == "TiB"
    assert amount >= 1 or unit == "B"
