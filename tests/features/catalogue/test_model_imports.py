"""A pasted config.json becomes a model with exact counts, and its gaps are reported."""

from typing import Any
from uuid import uuid4

import pytest
from openapi_schema_validator import OAS31Validator

from tests.api.asking import QUESTION, Ask
from tests.echoes import beyond_echo

CONFIG = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
TOTAL = 494_032_768
"""Qwen2.5 0.5B, as transformers counts it."""


@pytest.fixture
def slug() -> str:
    return f"imported-{uuid4().hex[:12]}"


def delete(own: Ask, slug: str) -> None:
    assert own("DELETE", f"/v1/models/{slug}", headers={"If-Match": "*"}).status_code == 204


def test_a_config_becomes_a_preset(own: Ask, document: dict[str, Any], slug: str) -> None:
    answer = own("POST", f"/v1/models/import?slug={slug}&name=Our%20Model", json={**CONFIG, "made_up": 1})
    assert answer.status_code == 201, answer.text
    imported = answer.json()
    assert imported["parameters"]["total"] == TOTAL
    assert any("rope_theta" in text or "max_position" in text for text in imported["assumptions"])
    assert any("made_up" in text for text in imported["warnings"])
    assert imported["row"]["name"] == "Our Model"
    assert "read from a Hugging Face config" in imported["row"]["note"]
    read = own("GET", answer.headers["location"])
    assert read.json() == imported["row"]
    assert read.headers["etag"] == answer.headers["etag"]
    schema = document["paths"]["/v1/models/import"]["post"]["responses"]["201"]["content"]["application/json"]["schema"]
    OAS31Validator({**schema, "components": document["components"]}).validate(imported)
    asked = own("POST", "/v1/estimates", json={**QUESTION, "model": "our model"})
    assert asked.json()["parameters"]["total"] == TOTAL
    delete(own, slug)


@pytest.mark.parametrize(
    ("named", "slug"),
    [
        ({"_name_or_path": "some-team/Our_Model-0.5B/"}, "our-model-0.5b"),
        ({}, "qwen2-494m"),
        ({"_name_or_path": 7}, "qwen2-494m"),
        ({"_name_or_path": "a/b__..--c"}, "qwen2-494m"),
        ({"_name_or_path": "import"}, "qwen2-494m"),
    ],
)
def test_a_slug_follows_from_the_config(own: Ask, named: dict[str, Any], slug: str) -> None:
    answer = own("POST", "/v1/models/import", json={**CONFIG, **named})
    assert answer.json()["row"]["slug"] == slug
    assert answer.json()["row"]["name"] == slug
    again = own("POST", "/v1/models/import", json={**CONFIG, **named})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert [(error["parameter"], error["code"]) for error in again.json()["errors"]] == [("slug", "name_taken")]
    delete(own, slug)


@pytest.mark.parametrize(
    ("config", "pointer", "code"),
    [
        ({}, "/model_type", "model_type_missing"),
        ({"model_type": "c4n4ry"}, "/model_type", "model_type_unknown"),
        ({**CONFIG, "num_hidden_layers": "24"}, "/num_hidden_layers", "not_a_whole_number"),
        ({**CONFIG, "num_key_value_heads": 3}, "", "key_value_heads_divide_heads"),
    ],
)
def test_a_config_that_describes_no_model_is_refused(own: Ask, config: Any, pointer: str, code: str) -> None:
    answer = own("POST", "/v1/models/import?slug=c4n4ry", json=config)
    assert answer.status_code == 422, answer.text
    error = answer.json()["errors"][0]
    assert (error["pointer"], error["code"]) == (pointer, code)
    assert "c4n4ry" not in beyond_echo(answer)


@pytest.mark.parametrize(
    ("query", "code"),
    [("slug=", "not_text"), ("slug=a&slug=b", "repeated"), ("slug=No%20Slug", "not_a_slug"), ("slug=a%00", "not_text"),
     ("slug=import", "reserved"), ("name=%00", "not_text"), (f"name={'x' * 201}", "wrong_length")],
)  # fmt: skip
def test_a_wrong_name_is_refused(own: Ask, query: str, code: str) -> None:
    answer = own("POST", f"/v1/models/import?{query}", json=CONFIG)
    error = answer.json()["errors"][0]
    assert (answer.status_code, error["code"], error["parameter"]) == (422, code, query.partition("=")[0])


def test_a_body_may_hold_a_config_beside_its_own_columns(own: Ask, slug: str) -> None:
    body = {"slug": slug, "family": "Ours", "hf_config": CONFIG}
    row = own("POST", "/v1/models", json=body).json()
    assert (row["hidden_size"], row["family"], row["tie_word_embeddings"]) == (896, "Ours", True)
    refused = own("POST", "/v1/models", json={"slug": f"{slug}-2", "hf_config": {"model_type": "bert"}})
    assert refused.json()["errors"][0]["pointer"].startswith("/hf_config")
    delete(own, slug)


def test_infinity_where_published_configs_have_it(own: Ask) -> None:
    config = (
        b'{"model_type": "mamba2", "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 8, '
        b'"head_dim": 16, "state_size": 16, "n_groups": 1, "time_step_limit": [0.0, Infinity]}'
    )
    json_body = {"content-type": "application/json"}
    imported = own("POST", "/v1/models/import?slug=infinite-steps", content=config, headers=json_body)
    assert imported.status_code == 201, imported.text
    assert imported.json()["warnings"] == []
    assert own("DELETE", "/v1/models/infinite-steps", headers={"If-Match": "*"}).status_code == 204
    elsewhere = config.replace(b"[0.0, Infinity]", b"[]").replace(b"1000", b"Infinity")
    refused = own("POST", "/v1/models/import?slug=infinite-words", content=elsewhere, headers=json_body)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "not_finite")
