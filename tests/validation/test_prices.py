"""A price is read in each of its forms, with date, age and region."""

from dataclasses import replace
from typing import Any

import pytest

from service.catalogue import Catalogue, PriceRow, Rate, RateCardRow
from service.catalogue.rows import Purchase
from service.errors import Refused
from service.estimator.question import OwnedPrice, Price, Storage
from service.validation.question_parts import MOST_DAYS, age_days, age_warnings
from service.validation.questions import ParsedQuestion, read_question

H100 = "h100-sxm5-80gb"
ON_AWS = {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"}


def read(catalogue: Catalogue, price: Any, **cluster: Any) -> ParsedQuestion:
    return read_question(
        {
            "model": "llama-3.1-8b",
            "recipe": {"sequence_length": 4096},
            "cluster": {"gpu": H100, "gpus": 8, **cluster},
            "price": price,
        },
        catalogue,
    )


def problems(catalogue: Catalogue, price: Any, **cluster: Any) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        read(catalogue, price, **cluster)
    return [(problem.field, problem.code) for problem in refused.value.problems]


def test_a_price_of_the_catalogue_keeps_its_date_its_terms_and_what_is_paid_beside(catalogue: Catalogue) -> None:
    beside = {"discount_fraction": 0.2, "storage": {"usd_per_gb_month": 0.02}}
    found = read(catalogue, {**ON_AWS, **beside}).question.price
    assert isinstance(found, Price)
    row = next(row for row in catalogue.prices if row.gpu == H100 and row.usd_per_gpu_hour == found.usd_per_gpu_hour)
    assert (found.price_model, found.as_of) == ("on-demand", row.as_of)
    assert (found.discount_fraction, found.storage) == (0.2, Storage(usd_per_gb_month=0.02))


def test_a_rate_card_gives_the_terms_of_its_rate(catalogue: Catalogue) -> None:
    card = RateCardRow(
        slug="ours",
        name="Ours",
        rates=(Rate(gpu=H100, usd_per_gpu_hour=1.5, price_model="spot"),),
        source="a contract",
        as_of="2026-11",
        verified="yes",
    )
    asked = read(catalogue.changed(put=[card]), {"rate_card": "ours"})
    assert isinstance(asked.question.price, Price)
    assert (asked.question.price.price_model, asked.question.price.as_of) == ("spot", "2026-11")
    assert not asked.warnings


def test_own_hardware_takes_the_catalogues_purchase_price(catalogue: Catalogue) -> None:
    asked = read(catalogue, {"amortisation_years": 4.0})
    bought = catalogue.gpus[H100].purchase
    assert bought is not None
    assert isinstance(asked.question.price, OwnedPrice)
    assert (asked.question.price.purchase_usd, asked.question.price.as_of) == (bought.usd, bought.as_of)
    assert any(bought.source in said for said in asked.assumptions)
    assert any("purchase_usd" in said for said in asked.warnings)
    own = read(catalogue, {"amortisation_years": 4.0, "purchase_usd": 2e4})
    assert isinstance(own.question.price, OwnedPrice)
    assert own.question.price.purchase_usd == 2e4
    assert not own.warnings


def test_a_gpu_without_a_purchase_price_needs_one(catalogue: Catalogue) -> None:
    asked = read(catalogue, {"amortisation_years": 4.0}, gpu="l40s")
    assert catalogue.gpus["l40s"].purchase is None
    assert isinstance(asked.question.price, OwnedPrice)
    assert asked.question.price.purchase_usd is None


@pytest.mark.parametrize(
    ("as_of", "newest", "days"),
    [
        ("2025-03-17", "2026-03-17", 365),
        ("2025-03", "2026-03-17", 351),
        ("2025", "2026-11-21", 325),
        ("2026", "2026-11-21", -40),
        ("2024-02", "2024-03", 1),
        ("0000", "0001", -364),
        ("2025-02-31", "2025-03-01", 1),
    ],
)
def test_an_age_is_told_as_low_as_the_dates_allow(as_of: str, newest: str, days: int) -> None:
    assert age_days(as_of, newest) == days


def test_an_old_price_is_warned_of_by_the_catalogue_and_not_by_a_clock(catalogue: Catalogue) -> None:
    row = next(row for row in catalogue.prices if row.gpu == H100)
    old = replace(row, provider="old", region="here", price_model="on-demand", as_of="2024-05")
    aged = catalogue.changed(put=[old])
    told = {"provider": "old", "region": "here", "price_model": "on-demand"}
    (said,) = read(aged, told).warnings
    newest = max(row.as_of for row in aged.gpus.values())
    assert "2024-05" in said
    assert f"{age_days('2024-05', newest)} days" in said
    assert read(aged, told).warnings == read(aged, told).warnings
    assert not read(aged, {"usd_per_gpu_hour": 2.0, "as_of": newest}).warnings
    assert read(aged, {"usd_per_gpu_hour": 2.0, "as_of": "2024-05"}).warnings == (said,)


def test_as_old_as_is_allowed_is_not_old(catalogue: Catalogue) -> None:
    dated = replace(next(iter(catalogue.gpus.values())), as_of="2100-06-30")
    later = catalogue.changed(put=[dated])
    assert age_days("2100-01-01", "2100-06-30") == MOST_DAYS
    assert age_warnings("2100-01-01", later, "x") == ()
    assert len(age_warnings("2099-12-31", later, "x")) == 1


def test_a_price_of_a_place_tells_where_the_cluster_stands(catalogue: Catalogue) -> None:
    cluster = read(catalogue, ON_AWS).question.cluster
    assert (cluster.grid_region, cluster.grid_kg_co2e_per_kwh, cluster.pue) == ("aws:us-east-1", 0.32305, 1.15)
    own = read(catalogue, ON_AWS, grid_region="fr", pue=1.3).question.cluster
    assert (own.grid_region, own.grid_kg_co2e_per_kwh, own.pue) == ("FRA", 0.056039, 1.3)
    measured = read(catalogue, ON_AWS, grid_kg_co2e_per_kwh=0.01).question.cluster
    assert (measured.grid_region, measured.grid_kg_co2e_per_kwh, measured.pue) == (None, 0.01, None)


def test_a_price_of_a_place_whose_grid_is_not_known_tells_nothing(catalogue: Catalogue) -> None:
    row: PriceRow = next(row for row in catalogue.prices if row.gpu == H100)
    elsewhere = replace(row, provider="aws", region="moon-1", price_model="on-demand")
    asked = read(catalogue.changed(put=[elsewhere]), {**ON_AWS, "region": "moon-1"})
    assert asked.question.cluster.grid_region is None


def test_an_unknown_place_is_refused(catalogue: Catalogue) -> None:
    assert problems(catalogue, None, grid_region="us-east-1") == [("cluster.grid_region", "unknown_region")]


def test_a_purchase_has_a_date(catalogue: Catalogue) -> None:
    undated = replace(catalogue.gpus[H100], purchase=Purchase(usd=1e4, as_of="2024", source="an offer"))
    assert len(read(catalogue.changed(put=[undated]), {"amortisation_years": 4.0}).warnings) == 1
