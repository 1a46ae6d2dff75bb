"""A question uses the rate of a team's own card and names it, and is refused where the card has none."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.api.asking import QUESTION, Ask
from tests.echoes import beyond_echo

FLAT = {
    "model": "llama-3.1-8b", "sequence_length": "4096", "gpu": "h100", "gpus": "8", "training_tokens": "1e12",
}  # fmt: skip


@pytest.fixture
def card(own: Ask) -> Iterator[str]:
    """A card with rates of several kinds."""
    slug = f"card-{uuid4().hex[:12]}"
    rates = [
        {"gpu": "h100", "usd_per_gpu_hour": 2.0},
        {"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 1.0, "price_model": "spot"},
        {"gpu": "a100-sxm4-80gb", "usd_per_gpu_hour": 1.25, "price_model": "reserved-1y"},
        {"gpu": "b200-sxm-180gb", "usd_per_gpu_hour": 3, "price_model": "spot"},
        {"gpu": "b200-sxm-180gb", "usd_per_gpu_hour": 4, "price_model": "on-demand"},
    ]
    created = own("POST", "/v1/rate-cards", json={"slug": slug, "rates": rates, "as_of": "2026-07"})
    assert created.status_code == 201, created.text
    assert created.json()["rates"][0] == {"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 2.0, "price_model": None}
    yield slug
    assert own("DELETE", f"/v1/rate-cards/{slug}", headers={"If-Match": "*"}).status_code == 204


def ask(own: Ask, gpu: str, **price: str) -> Any:
    cluster = {"gpu": gpu, "gpus": 8}
    return own("POST", "/v1/estimates", json={**QUESTION, "cluster": cluster, "price": price})


@pytest.mark.parametrize(
    ("gpu", "terms", "cost", "said"),
    [
        ("h100", None, 2.0, "as of 2026-07"),
        ("h100", "spot", 1.0, ", spot, as of 2026-07"),
        ("h100", "reserved-3y", 2.0, "on any terms alike"),
        ("a100-sxm4-80gb", None, 1.25, "only as reserved-1y"),
        ("b200-sxm-180gb", "on-demand", 4.0, ", on-demand, as of"),
    ],
)
def test_the_rate_of_the_clusters_gpu_is_taken_and_said(
    own: Ask, card: str, gpu: str, terms: str | None, cost: float, said: str
) -> None:
    answer = ask(own, gpu, rate_card=card, **({"price_model": terms} if terms else {})).json()
    price = answer["resolved"]["price"]
    assert (price["usd_per_gpu_hour"], price["as_of"]) == (cost, "2026-07")
    assumptions = [text for text in answer["assumptions"] if "rate card" in text]
    assert any(f"costs {cost:g} USD: rate card {card}" in text for text in assumptions)
    assert any(said in text for text in assumptions)


@pytest.mark.parametrize(
    ("gpu", "price", "pointer", "code"),
    [
        ("l40s", {}, "/price/rate_card", "no_rate"),
        ("b200-sxm-180gb", {}, "/price/price_model", "no_rate"),
        ("a100-sxm4-80gb", {"price_model": "spot"}, "/price/price_model", "no_rate"),
        ("h100", {"rate_card": "c4n4ry"}, "/price/rate_card", "unknown_rate_card"),
        ("h100", {"usd_per_gpu_hour": 2}, "/price", "priced_twice"),
        ("h100", {"provider": "aws"}, "/price", "priced_twice"),
        ("h100", {"price_model": "free"}, "/price/price_model", "not_a_choice"),
    ],
)
def test_a_card_without_the_rate_is_refused(
    own: Ask, card: str, gpu: str, price: dict[str, Any], pointer: str, code: str
) -> None:
    answer = ask(own, gpu, **{"rate_card": card, **price})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["pointer"], error["code"]) == (pointer, code)
    assert "c4n4ry" not in beyond_echo(answer)


def test_the_flat_form_and_cells_take_a_card(own: Ask, card: str) -> None:
    for terms, rate in (({"price_model": "spot"}, 1.0), ({}, 2.0)):
        priced = {**FLAT, "rate_card": card, **terms}
        totals = own("GET", "/v1/gpu-hours", params=priced).json()["totals"]
        assert totals["cost_usd"]["value"] == pytest.approx(totals["gpu_hours"]["value"] * rate, abs=0.01)
        cell = own("GET", "/v1/cell/cost_usd", params={**priced, "num": "."})
        assert float(cell.text) == totals["cost_usd"]["value"]
    refused = own("GET", "/v1/cell/cost_usd", params={**FLAT, "rate_card": "nobodys", "on_error": "text"})
    assert refused.text.startswith("#ERR unknown_rate_card: ")


def test_an_own_price_is_the_newest_where_it_is(own: Ask) -> None:
    price = {"provider": "own-cloud", "region": "here", "price_model": "spot"}
    body = {**price, "gpu": "h100", "usd_per_gpu_hour": 0.75}
    keys = [
        own("POST", "/v1/prices", json={**body, "as_of": as_of, "usd_per_gpu_hour": cost}).json()["id"]
        for as_of, cost in (("2026-01", 0.5), ("2026-07", 0.75))
    ]
    found = ask(own, "h100", **price).json()["resolved"]["price"]
    assert (found["usd_per_gpu_hour"], found["as_of"], found["price_model"]) == (0.75, "2026-07", "spot")
    for key in keys:
        assert own("DELETE", f"/v1/prices/{key}", headers={"If-Match": "*"}).status_code == 204


def test_cards_are_listed_and_exported(own: Ask, card: str) -> None:
    (item,) = own("GET", f"/v1/rate-cards?slug={card}").json()["items"]
    assert item == own("GET", f"/v1/rate-cards/{card}").json()
    table = own("GET", f"/v1/rate-cards.csv?slug={card}").text
    assert "h100-sxm5-80gb spot 1;a100-sxm4-80gb reserved-1y 1.25" in table
    (found,) = own("GET", "/v1/rate-cards", params={"rates": "A100-sxm4-80gb reserved-1y 1.25"}).json()["items"]
    assert found == item


def test_one_gpu_under_two_names_has_one_rate(own: Ask) -> None:
    rates = [{"gpu": "h100", "usd_per_gpu_hour": 1}, {"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 2}]
    refused = own("POST", "/v1/rate-cards", json={"slug": "two-names", "rates": rates})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "repeated")
