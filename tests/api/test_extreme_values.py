"""Values at the very ends of their bounds are answered or refused, never a failure."""

from dataclasses import fields
from typing import Any

import pytest

from service.estimator.question import Checkpointing, Cluster, Egress, Layout, Model, OwnedPrice, Price, Recipe, Storage
from service.validation.reading import schema_of
from tests.api.asking import QUESTION, Ask

SMALLEST_DOUBLE = 5e-324
INLINE = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip
PARTS = {Model: "model", Recipe: "recipe", Layout: "layout", Cluster: "cluster", Price: "price"}


def ends_of(schema: dict[str, Any]) -> list[Any]:
    """The smallest and the largest value of a numeric field; nothing for other fields."""
    found = []
    for option in schema.get("anyOf", [schema]):
        low, high = option.get("exclusiveMinimum"), option.get("exclusiveMaximum")
        found += [option[key] for key in ("minimum", "maximum") if key in option]
        found += [] if low is None else [low + SMALLEST_DOUBLE]
        found += [] if high is None else [high * (1 - 1e-15)]
    return found


OWNED = {"amortisation_years": 4, "purchase_usd": 3e4, "usd_per_kwh": 0.1}
"""A price of own hardware with what its extremes stand beside."""

EXTREMES = [
    pytest.param(part, field.name, value, id=f"{part}.{field.name}={value:g}")
    for noun, part in PARTS.items()
    for field in fields(noun)
    for value in ends_of(schema_of(noun)["properties"][field.name])
]


@pytest.mark.parametrize(("part", "name", "value"), EXTREMES)
def test_an_extreme_value_is_answered_or_refused(ask: Ask, part: str, name: str, value: Any) -> None:
    body = {**QUESTION, "model": INLINE}
    answer = ask("POST", "/v1/estimates", params={"explain": "true"}, json={**body, part: {**body[part], name: value}})
    assert answer.status_code in {200, 422}, answer.text[:500]
    if answer.status_code == 422:
        assert all(error["code"] not in {"not_a_number", "out_of_range"} for error in answer.json()["errors"])


@pytest.mark.parametrize(
    ("part", "noun", "beside"),
    [
        ("price", OwnedPrice, OWNED),
        ("checkpoint", Checkpointing, {}),
        ("storage", Storage, {"usd_per_gb_month": 1}),
        ("egress", Egress, {"bytes": 1, "usd_per_gb": 1}),
    ],
)
def test_an_extreme_value_of_money_and_checkpoints_is_answered_or_refused(
    ask: Ask, part: str, noun: type, beside: dict[str, Any]
) -> None:
    for field in fields(noun):
        for value in ends_of(schema_of(noun)["properties"][field.name]):
            told = {**beside, field.name: value}
            priced = {"usd_per_gpu_hour": 2, part: told} if part in {"storage", "egress"} else QUESTION["price"]
            body = {**QUESTION, "model": INLINE, "price": told if part == "price" else priced}
            if part == "checkpoint":
                body["recipe"] = {**QUESTION["recipe"], "checkpoint": told}
            answer = ask("POST", "/v1/estimates", params={"explain": "true"}, json=body)
            assert answer.status_code in {200, 422}, f"{field.name} {value}: {answer.text[:500]}"
            if answer.status_code == 422:
                assert all(error["code"] not in {"not_a_number", "out_of_range"} for error in answer.json()["errors"])


def test_extremes_are_found() -> None:
    assert len(EXTREMES) > 80


def test_a_rate_that_no_network_has_is_refused_by_its_field(ask: Ask) -> None:
    cluster = {"gpu": "h100-sxm5-80gb", "gpus": 16, "inter_node_bytes_per_s": SMALLEST_DOUBLE}
    answer = ask("POST", "/v1/estimates", json={**QUESTION, "cluster": cluster})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/cluster/inter_node_bytes_per_s", "out_of_range")
