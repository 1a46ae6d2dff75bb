"""CORS: what a page of an allowed origin may send and read."""

from typing import Any

import pytest

from service.api.cross_site import EXPOSED_HEADERS, SENT_HEADERS
from tests.api.asking import Ask

ALLOWED = "https://tools.example.org"
"""The origin that the tests' settings name."""


def test_a_page_of_an_allowed_origin_may_read_answers_and_their_headers(ask: Ask) -> None:
    answer = ask("GET", "/healthz", headers={"Origin": ALLOWED})
    assert answer.headers["access-control-allow-origin"] == ALLOWED
    exposed = set(answer.headers["access-control-expose-headers"].split(", "))
    assert exposed == set(EXPOSED_HEADERS) > {"ETag", "RateLimit", "Retry-After", "X-Request-Id", "X-Verdict"}
    assert "Origin" in answer.headers["vary"]


def test_a_problem_document_can_be_read_by_an_allowed_page_too(ask: Ask) -> None:
    for path in ("/no-such-path", "/v1/memory"):
        answer = ask("GET", path, headers={"Origin": ALLOWED})
        assert answer.headers["access-control-allow-origin"] == ALLOWED


def test_another_origin_is_not_let_in(ask: Ask) -> None:
    assert (
        "access-control-allow-origin" not in ask("GET", "/healthz", headers={"Origin": "https://other.example"}).headers
    )


def test_a_preflight_names_methods_and_lasts_ten_minutes(ask: Ask) -> None:
    headers = {
        "Origin": ALLOWED,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    answer = ask("OPTIONS", "/v1/estimates", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE"
    assert answer.headers["access-control-max-age"] == "600"


def test_a_page_of_an_allowed_origin_may_change_rows(ask: Ask) -> None:
    asked = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "content-type, if-match"}
    answer = ask("OPTIONS", "/v1/gpus/own", headers={"Origin": ALLOWED, **asked})
    assert answer.status_code == 200
    assert "If-Match" in answer.headers["access-control-allow-headers"].split(", ")


def preflight(ask: Ask, header: str) -> int:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": header.lower()}
    return ask("OPTIONS", "/v1/sweeps", headers={"Origin": ALLOWED, **asked}).status_code


def test_every_header_of_the_contract_may_be_sent(ask: Ask, document: dict[str, Any]) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    found = [parameter for operation in operations for parameter in operation.get("parameters", ())]
    known = document["components"].get("parameters", {})
    found = [known[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in found]
    named = {one["name"] for one in found if one["in"] == "header"}
    assert named >= {"If-Match", "Idempotency-Key", "Last-Event-ID"}
    assert {name: preflight(ask, name) for name in named} == dict.fromkeys(named, 200)


@pytest.mark.parametrize("header", [*SENT_HEADERS, "authorization,content-type,idempotency-key,traceparent"])
def test_what_the_service_reads_may_be_sent(ask: Ask, header: str) -> None:
    assert preflight(ask, header) == 200


@pytest.mark.parametrize("header", ["x-forwarded-for", "x-any-other"])
def test_what_it_does_not_read_may_not(ask: Ask, header: str) -> None:
    assert preflight(ask, header) == 400


def test_every_header_of_an_answer_in_the_contract_may_be_read(document: dict[str, Any]) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    answers = [answer for operation in operations for answer in operation["responses"].values()]
    answers += document["components"]["responses"].values()
    named = {name for answer in answers for name in answer.get("headers", {})}
    assert named >= {"ETag", "Idempotent-Replayed", "WWW-Authenticate", "X-Unit"}
    assert named <= set(EXPOSED_HEADERS)


def test_a_page_reads_what_a_program_would(ask: Ask) -> None:
    headers = {"Origin": ALLOWED}
    sent = {"GET": ("/v1/gpus.xlsx", "content-disposition"), "PUT": ("/v1/estimates", "allow")}
    for method, (path, header) in sent.items():
        answer = ask(method, path, headers=headers)
        assert header in answer.headers
        assert header in answer.headers["access-control-expose-headers"].lower().split(", ")
