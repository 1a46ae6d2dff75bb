"""Examples of the contract: each has its declared type, and is what the service answers now."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from service.api.errors import KINDS
from service.openapi.document import EXAMPLE_ADDRESSES, RECORDED, problem_example, successes
from tests.api.asking import Ask, example_of
from tests.contract.record import Document, form_of, given_examples, recorded
from tests.contracts import resolved

BINARY = "binary"


def examples(document: Document) -> Iterator[tuple[str, Document, Any]]:
    """Every example: where it stands, the schema that it follows, its value."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for one in (resolved(document, part) for part in operation.get("parameters", ())):
                if "example" in one:
                    yield f"{method} {path} {one['name']}", one["schema"], one["example"]
            asked = operation.get("requestBody", {}).get("content", {})
            for media_type, content in [*asked.items(), *successes(operation)]:
                yield from shown(f"{method} {path} {media_type}", content)
    for name, response in document["components"]["responses"].items():
        for content in response.get("content", {}).values():
            yield from shown(name, content)


def shown(place: str, content: Document) -> Iterator[tuple[str, Document, Any]]:
    """The examples of one media type."""
    for example in content.get("examples", {}).values():
        yield place, content["schema"], example["value"]
    for address in content.get(EXAMPLE_ADDRESSES, ()):
        yield place, content["schema"], json.loads((RECORDED / address.rpartition("/")[2]).read_bytes())
    if "example" in content:
        yield place, content["schema"], content["example"]


def test_every_example_is_what_its_type_says(document: Document) -> None:
    checked = 0
    for place, schema, value in examples(document):
        errors = list(OAS31Validator({**schema, "components": document["components"]}).iter_errors(value))
        assert errors == [], (place, errors[0].message)
        checked += 1
    assert checked > 200


def test_everything_that_is_sent_and_answered_has_an_example(document: Document) -> None:
    bare = [
        (method, path, media_type)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for media_type, content in [*operation.get("requestBody", {}).get("content", {}).items(), *successes(operation)]
        if not (content.get("examples") or content.get(EXAMPLE_ADDRESSES))
        and "example" not in content
        and content["schema"].get("format") != BINARY
    ]
    assert bare == []
    problems = [
        content for one in document["components"]["responses"].values() for content in one.get("content", {}).values()
    ]
    shown_codes = {code for content in problems for code in content.get("examples", ())}
    assert shown_codes == KINDS.keys()


def test_answers_have_the_form_that_is_shown(tmp_path: Path) -> None:
    assert form_of(recorded(tmp_path)) == form_of(given_examples()), "run: python -m tests.contract.record"


ESTIMATES = ("POST", "/v1/estimates")
QUESTION = {"model": "llama-3.1-8b", "recipe": {"sequence_length": 8192}, "cluster": {"gpu": "h100", "gpus": 8}}
GPU = example_of("createGpu")
PLACE = f"/v1/gpus/{GPU['slug']}"
JSON = {"content-type": "application/json"}

CHECK: dict[str, Any] = {
    "json": {"question": QUESTION, "probes": ["gemm"]},
    "headers": {"Idempotency-Key": "k"},
}

PROVOKED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "not_json": (*ESTIMATES, {"content": b'{"model": ', "headers": JSON}),
    "unknown_metric": (
        "GET",
        "/v1/cell/gpu_hour?model=llama-3.1-8b&sequence_length=8192&gpu=h100&gpus=8&on_error=problem",
        {},
    ),
    "key_reused": ("POST", "/v1/launch-checks", {**CHECK, "json": {"question": QUESTION, "probes": ["step"]}}),
    "no_matching_worker": ("POST", "/v1/launch-checks", {"json": {"question": QUESTION, "on": "matching"}}),
    "lease_lost": ("POST", "/v1/worker/jobs/lch_none/heartbeat", {"json": {"lease": "none"}}),
    "unknown_revision": ("GET", "/v1/estimates?rev=000000000000", {}),
    "not_found": ("GET", "/v1/models/llama-9b", {}),
    "method_not_allowed": ("PUT", "/v1/estimates", {"json": QUESTION}),
    "conflict": ("POST", "/v1/gpus", {"json": {**GPU, "slug": "h100-sxm5-80gb"}}),
    "body_too_large": (*ESTIMATES, {"content": b" " * (1 << 20) + b"{}", "headers": JSON}),
    "unsupported_media_type": (*ESTIMATES, {"content": b"{}", "headers": {"content-type": "text/plain"}}),
    "refused": (*ESTIMATES, {"json": {**QUESTION, "layout": {"tensor": 3}}}),
    "precondition_required": ("PATCH", PLACE, {"json": {"board_watts": 650}}),
    "stale": ("PATCH", PLACE, {"json": {"board_watts": 650}, "headers": {"if-match": '"older"'}}),
}
"""A request that each kind of problem answers."""


@pytest.fixture(scope="module")
def changed_row(ask: Ask) -> None:
    assert ask("POST", "/v1/gpus", json=GPU).status_code == 201
    assert ask("PATCH", PLACE, json={"board_watts": 600}, headers={"if-match": "*"}).status_code == 200
    assert ask("POST", "/v1/launch-checks", **CHECK).status_code == 202
    able = {"cpu_threads": 8, "measures": True}
    said = {"worker": "lab", "kinds": ["sweep-shard"], "capabilities": able}
    assert ask("POST", "/v1/worker/claim", json=said).status_code == 204


@pytest.mark.usefixtures("changed_row")
@pytest.mark.parametrize("code", PROVOKED)
def test_a_problem_is_told_as_its_example_tells_it(ask: Ask, code: str) -> None:
    method, path, request = PROVOKED[code]
    told = ask(method, path, **request).json()
    example = problem_example(code)
    assert told.pop("request_id") != example.pop("request_id")
    assert told == example
