"""Money is whole cents, computed in decimals, and its lines add up."""

from dataclasses import replace
from decimal import Decimal
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.estimator import estimate
from service.estimator.answer import Interval, Totals
from service.estimator.question import Egress, OwnedPrice, Price, Storage
from service.estimator.run.cost import amortisation_usd, hosting_usd, maintenance_usd, rent_usd, sum_usd, usd
from tests.estimator.run.test_totals import PLAIN

ENDS = ("low", "value", "high")

PRICES: dict[str, Price | OwnedPrice] = {
    "rented": Price(usd_per_gpu_hour=2.33),
    "reduced": Price(usd_per_gpu_hour=2.33, discount_fraction=0.175),
    "whole": Price(
        usd_per_gpu_hour=2.33,
        storage=Storage(usd_per_gb_month=0.023, checkpoints=3, data_bytes=3.1e14),
        egress=Egress(bytes=1.7e13, usd_per_gb=0.09),
    ),
    "owned": OwnedPrice(
        amortisation_years=4.0,
        purchase_usd=33_333.33,
        residual_fraction=0.1,
        utilisation_fraction=0.7,
        maintenance_fraction=0.03,
        usd_per_kwh=0.083,
        usd_per_kw_month=140.0,
        storage=Storage(usd_per_gb_month=0.01),
    ),
}


def totals(price: Price | OwnedPrice) -> Totals:
    found = estimate(replace(PLAIN, price=price)).totals
    assert found is not None
    return found


def lines(price: Price | OwnedPrice) -> dict[str, Interval]:
    found = totals(price)
    assert found.cost is not None
    return {line.kind: line.usd for line in found.cost}


def cents(amount: float) -> Decimal:
    return Decimal(repr(amount)).quantize(Decimal("0.01"))


@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
def test_lines_are_whole_cents_and_sum_to_the_cost(price: Price | OwnedPrice) -> None:
    found = totals(price)
    assert found.cost_usd is not None
    for end in ENDS:
        amounts = [Decimal(repr(getattr(line, end))) for line in lines(price).values()]
        assert all(amount == cents(float(amount)) for amount in amounts)
        assert sum(amounts) == Decimal(repr(getattr(found.cost_usd, end)))


def test_every_price_has_its_lines() -> None:
    kinds = {name: tuple(lines(price)) for name, price in PRICES.items()}
    assert kinds == {
        "rented": ("gpus",),
        "reduced": ("gpus",),
        "whole": ("gpus", "storage", "egress"),
        "owned": ("amortisation", "maintenance", "hosting", "electricity", "storage"),
    }


def test_lines_are_worked_by_hand() -> None:
    found, whole, owned = totals(PRICES["owned"]), lines(PRICES["whole"]), lines(PRICES["owned"])
    hours, days = found.billed_gpu_hours.value, found.days.value
    kept = 3 * 14 * 8_030_261_248 + 3.1e14
    assert whole["storage"].value == pytest.approx(kept / 1e9 * 0.023 * days * 24 / 730, abs=0.01)
    assert whole["egress"] == Interval(1530.0, 1530.0, 1530.0, "exact")
    assert lines(PRICES["reduced"])["gpus"].value == pytest.approx(hours * 2.33 * 0.825, abs=0.01)
    assert owned["amortisation"].value == pytest.approx(hours * 33_333.33 * 0.9 / (4 * 8760 * 0.7), abs=0.01)
    assert owned["maintenance"].value == pytest.approx(hours * 33_333.33 * 0.03 / (8760 * 0.7), abs=0.01)
    assert owned["hosting"].value == pytest.approx(hours * 1.275 * 140 / (730 * 0.7), abs=0.01)
    assert owned["electricity"].value == pytest.approx(found.energy_kwh.value * 0.083, abs=0.01)


@pytest.mark.parametrize(
    ("hours", "price", "expected"),
    [
        (0.5, 2.33, 1.16),
        (0.5, 2.35, 1.18),
        (0.5, 0.01, 0.0),
        (1.5, 0.01, 0.02),
        (100.0, 2.675, 267.5),
    ],
)
def test_half_a_cent_goes_to_the_even_cent(hours: float, price: float, expected: float) -> None:
    """In doubles 0.5 x 2.33 is a little above 1.165, and would go up."""
    assert usd(rent_usd, hours, price, 0.0) == expected


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=9))
def test_a_sum_of_cents_is_exact(amounts: list[int]) -> None:
    assert sum_usd(amount / 100 for amount in amounts) == sum(amounts) / 100


@given(st.floats(0, 1e300), st.floats(1e-4, 1e6), st.floats(0, 0.99))
def test_money_is_what_doubles_say_but_for_half_a_cent(hours: float, price: float, discount: float) -> None:
    rough = rent_usd(hours, price, discount)
    found = usd(rent_usd, hours, price, discount)
    assert found == pytest.approx(rough, rel=1e-12, abs=0.005001)


def test_amounts_beyond_all_bounds_stay_so() -> None:
    assert usd(rent_usd, inf, 2.0, 0.0) == inf
    assert sum_usd([inf, 1.0]) == inf


def test_the_same_formulas_serve_columns() -> None:
    import numpy as np

    hours = np.asarray([10.0, 1e6])
    for formula, rates in (
        (rent_usd, (2.33, 0.1)),
        (amortisation_usd, (30_000.0, 0.1, 4.0, 0.8)),
        (maintenance_usd, (30_000.0, 0.05, 0.8)),
        (hosting_usd, (1275.0, 150.0, 0.8)),
    ):
        column = np.asarray(formula(hours, *rates))
        assert [usd(formula, float(hour), *rates) for hour in hours] == pytest.approx(list(column), abs=0.005001)
