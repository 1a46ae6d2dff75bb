"""Every numeric field of every noun against every hostile value on every route: a small refusal, never a failure.

The canary stands for whatever a caller may send: it must not come back, in values or in names.
"""

import json
from collections.abc import Iterator
from dataclasses import fields
from itertools import cycle
from typing import Any, Literal, get_args, get_origin, get_type_hints

import httpx
import pytest

from service.api.errors import MOST_BYTES
from service.errors import MOST_PROBLEMS
from service.estimator import question
from service.validation.flat import flat_fields
from service.validation.question_parts import QUESTION_SPECS, CardPrice, CataloguePrice, Nodes, Planned
from tests.amounts import WHOLE
from tests.api.asking import QUESTION, Ask
from tests.echoes import beyond_echo

CANARY = "c4n4ry"

MODEL = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip

PARTS: dict[type, tuple[str, dict[str, Any]]] = {
    question.Model: ("model", MODEL),
    question.Recipe: ("recipe", {"sequence_length": 2048}),
    question.Recompute: ("recipe.recompute", {"granularity": "full"}),
    question.Layout: ("layout", {}),
    Planned: ("layout", {}),
    question.Cluster: ("cluster", {"gpu": "h100-sxm5-80gb", "gpus": 8}),
    Nodes: ("cluster", {"preset": "dgx-h100"}),
    question.Price: ("price", {}),
    CataloguePrice: ("price", {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"}),
    CardPrice: ("price", {"rate_card": "ours"}),
    question.OwnedPrice: ("price", {"amortisation_years": 4}),
    question.Checkpointing: ("recipe.checkpoint", {}),
    question.Storage: ("price.storage", {"usd_per_gb_month": 0.02}),
    question.Egress: ("price.egress", {"bytes": 1, "usd_per_gb": 0.02}),
}
"""Where each noun stands in a body, and what its object needs beside the field under test."""

NEVER = (
    "-1", "NaN", "Infinity", "-Infinity", "1e400", "-1e400", str(2**63), "9" * 4000, "1e-400" + "0" * 70, "true",
    '"\\ud800"', '"a\\u0000"', "[]", "{}", "[[1]]", f'"{CANARY}"', f'{{"{CANARY}": 1}}', f'["{CANARY}"]', '"1 000"',
)  # fmt: skip
"""JSON texts that no numeric field takes."""

IN_BATCHES = "gm"
"""First letters of the fields that are tried in batches too: some of every noun."""

SOMETIMES = ("0", "-0.0", "null", "1.5", "1e0")
"""JSON texts that some numeric fields take."""


def is_numeric(hint: Any) -> bool:
    """Whether a type holds numbers: int, float, a choice of integers, or a list or an optional of those."""
    if hint in {int, float}:
        return True
    if get_origin(hint) is Literal:
        return any(isinstance(choice, int) for choice in get_args(hint))
    return any(is_numeric(inner) for inner in get_args(hint))


def fields_where(*, numeric: bool) -> list[tuple[type, str]]:
    return [
        (noun, field.name)
        for noun in PARTS
        for field in fields(noun)
        if is_numeric(get_type_hints(noun)[field.name]) == numeric
    ]


def body_with(noun: type, field: str, text: str) -> bytes:
    """A request body whose one field holds a text that need not be JSON."""
    place, beside = PARTS[noun]
    part = {**beside, field: "@here@"}
    outer, _, inner = place.partition(".")
    body = {**QUESTION, "recipe": {"sequence_length": 2048}, "price": {"usd_per_gpu_hour": 2}}
    body |= {outer: {**body[outer], inner: part} if inner else part}
    return json.dumps(body).replace('"@here@"', text).encode()


def check_refusal(answer: httpx.Response, pointer: str) -> None:
    assert answer.status_code == 422, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) <= MOST_BYTES
    assert CANARY not in beyond_echo(answer)
    document = answer.json()
    assert {"type", "title", "status", "code", "detail", "request_id", "errors"} == document.keys()
    assert 1 <= len(document["errors"]) <= MOST_PROBLEMS
    for error in document["errors"]:
        assert error["pointer"].startswith(pointer)
        assert error["code"]
        assert error["message"]
        assert error["fix"]


def check_batch(ask: Ask, contents: list[bytes]) -> None:
    """In one request each is refused as it is alone."""
    headers = {"content-type": "application/json", "x-request-id": "the-same"}
    questions = b",".join(b'{"kind": "memory", "body": %b}' % content for content in contents)
    together = ask("POST", "/v1/batch", content=b'{"questions": [%b]}' % questions, headers=headers)
    alone = [ask("POST", "/v1/memory", content=content, headers=headers) for content in contents]
    answers = [{"status": answer.status_code, "body": answer.json()} for answer in alone]
    assert {answer["status"] for answer in answers} == {422}
    assert together.json() == {"answers": answers}


def places_for(paths: list[str], field: str) -> Iterator[list[str]]:
    """Which routes are asked with a field's next text: each field asks all, each with other texts."""
    turn = cycle([*paths[len(field) % len(paths) :], *paths])
    while True:
        yield paths if WHOLE else [next(turn)]


@pytest.fixture(scope="module")
def paths(document: dict[str, Any]) -> list[str]:
    """Every route that takes a question in its body."""
    found = [
        path.replace("{target}", "torchtitan")
        for path, operations in document["paths"].items()
        if "QuestionRequest" in json.dumps(operations.get("post", {}).get("requestBody", {}))
    ]
    assert len(found) >= 4
    return found


def test_every_noun_of_a_question_is_tried() -> None:
    assert {(place, noun) for noun, (place, _) in PARTS.items() if "." not in place} == set(QUESTION_SPECS)


def test_every_kind_of_field_is_found() -> None:
    numeric = {f"{noun.__name__}.{name}" for noun, name in fields_where(numeric=True)}
    assert {"Model.head_dim", "Recipe.training_tokens", "Layout.zero_stage", "Price.usd_per_gpu_hour"} <= numeric
    assert {"Layout.stage_layers", "Recompute.layers", "Nodes.nodes", "Layout.data", "Cluster.gpus"} <= numeric
    assert not {"Model.gated_mlp", "Cluster.gpu", "Recipe.precision", "Recipe.recompute"} & numeric


@pytest.mark.parametrize(("noun", "field"), fields_where(numeric=True))
def test_a_numeric_field_takes_numbers_within_bounds_only(ask: Ask, paths: list[str], noun: type, field: str) -> None:
    pointer = "/" + PARTS[noun][0].replace(".", "/")
    headers = {"content-type": "application/json"}
    never = [text for text in NEVER if field != "stage_layers" or text != "[[1]]"]
    if WHOLE or field[:1] in IN_BATCHES:
        check_batch(ask, [body_with(noun, field, text) for text in never])
    places = places_for(paths, field)
    for text in never:
        for path in next(places):
            check_refusal(ask("POST", path, content=body_with(noun, field, text), headers=headers), pointer)
    for text in SOMETIMES:
        for path in next(places):
            answer = ask("POST", path, content=body_with(noun, field, text), headers=headers)
            if answer.status_code != 200:
                check_refusal(answer, "/")


@pytest.mark.parametrize(("noun", "field"), fields_where(numeric=False))
def test_no_other_field_repeats_what_it_was_given(ask: Ask, paths: list[str], noun: type, field: str) -> None:
    texts = (f'"{CANARY}"', f'["{CANARY}"]', f'{{"{CANARY}": "{CANARY}"}}', '"\\ud800"', "NaN", "1", "1e400")
    contents = [body_with(noun, field, text) for text in texts]
    if WHOLE or field[:1] in IN_BATCHES:
        check_batch(ask, contents)
    places = places_for(paths, field)
    for content in contents:
        for path in next(places):
            answer = ask("POST", path, content=content, headers={"content-type": "application/json"})
            check_refusal(answer, "/" + PARTS[noun][0].split(".")[0])


@pytest.mark.parametrize(
    "body",
    [
        {CANARY: 1},
        {"model": CANARY, "recipe": {CANARY: CANARY}, "layout": {CANARY: 1}, "cluster": CANARY, "price": {CANARY: 1}},
        {"model": {"preset": CANARY, CANARY: 1}, "cluster": {"preset": CANARY, CANARY: 1}},
        {"model": {"hf_config": {"model_type": CANARY, CANARY: CANARY}}, "cluster": {"gpu": CANARY, "gpus": 8}},
        {"model": {"hf_config": {"model_type": "llama", "hidden_size": CANARY, "hidden_act": CANARY}}},
        {"model": {"hf_config": CANARY, CANARY: 1}, "price": {"provider": CANARY, "region": CANARY}},
        {"price": {"provider": CANARY, "region": CANARY, "price_model": "spot", "instance_type": CANARY}},
        {"recipe": {f"{CANARY}{i}": i for i in range(4000)}, "model": {f"{CANARY}{i}": i for i in range(4000)}},
        {"recipe": {"sequence_length": 8, "recompute": {f"{CANARY}{i}": i for i in range(4000)}}},
        {"layout": {"stage_layers": [CANARY] * 4000}},
    ],
)
def test_nothing_of_a_body_comes_back(ask: Ask, paths: list[str], body: dict[str, Any]) -> None:
    check_batch(ask, [json.dumps({**QUESTION, **body}).encode()])
    for path in paths:
        check_refusal(ask("POST", path, json={**QUESTION, **body}), "")


@pytest.mark.parametrize("body", ["[]", '"text"', "1", "null", "true", f'["{CANARY}"]', f'"{CANARY}"'])
def test_a_body_that_is_no_object_is_refused(ask: Ask, paths: list[str], body: str) -> None:
    for path in paths:
        answer = ask("POST", path, content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (400, "not_json")
        assert [error["pointer"] for error in answer.json()["errors"]] == [""]
        assert CANARY not in beyond_echo(answer)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {"content-type": f"application/{CANARY}"},
    ],
)
def test_another_media_type_is_refused(ask: Ask, paths: list[str], headers: dict[str, str]) -> None:
    for path in paths:
        answer = ask("POST", path, content=json.dumps(QUESTION), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
        assert all(error["fix"] for error in answer.json()["errors"])
        assert CANARY not in beyond_echo(answer)


FLAT = {"model": "llama-3.1-8b", "sequence_length": "2048", "gpu": "h100-sxm5-80gb", "gpus": "8"}


@pytest.mark.parametrize("name", flat_fields())
def test_a_flat_parameter_takes_its_own_values_only(ask: Ask, name: str) -> None:
    hostile = (
        "nan",
        "inf",
        "-1",
        "1e400",
        "9" * 4000,
        "",
        "\0",
        CANARY,
        f"{CANARY},5",
        "0x10",
        "\uff11",
        "8 ",
        "\ud7ff😀",
    )
    for text in hostile:
        answer = ask("GET", "/v1/memory", params={**FLAT, name: text})
        assert answer.status_code == 422, (name, text)
        assert CANARY not in beyond_echo(answer)
        assert len(answer.content) <= MOST_BYTES
        assert all(error["message"] and error["fix"] for error in answer.json()["errors"])


def test_an_unknown_flat_parameter_is_refused(ask: Ask) -> None:
    for unknown in ({CANARY: "1"}, {"": "1"}, {"tensor[]": "1"}, {"explain": "yes"}, {"explain": CANARY}):
        answer = ask("GET", "/v1/flops", params={**FLAT, **unknown})
        assert answer.status_code == 422
        assert CANARY not in beyond_echo(answer)


def test_a_query_parameter_of_a_post_is_refused(ask: Ask, paths: list[str]) -> None:
    for path in paths:
        answer = ask("POST", f"{path}?{CANARY}={CANARY}", json=QUESTION)
        assert answer.status_code == 422
        assert CANARY not in beyond_echo(answer)
