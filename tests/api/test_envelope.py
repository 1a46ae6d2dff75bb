"""Every answer carries an id and its common headers; every failure is a problem document."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from service import __version__
from service.api.envelope import ErrorMiddleware, RequestMiddleware
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.logs import AsJson, AsText
from service.settings import Settings
from tests.api.asking import ADMISSION_TOKEN, Ask
from tests.fixtures import asking, one_by_one


async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise ZeroDivisionError("CANARY in a stack")


async def broken_midway(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ZeroDivisionError("CANARY in a stack")


def get(app: httpx.ASGITransport, path: str = "/") -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
            return await client.get(path)

    return asyncio.run(send())


@pytest.mark.parametrize("path", ["/healthz", "/v1/choices", "/docs", "/no-such-path", "/v1/estimates"])
def test_every_answer_has_an_id_and_its_media_type_is_not_guessed(ask: Ask, path: str) -> None:
    answer = ask("GET", path)
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_process_that_is_about_to_end_says_so_itself() -> None:
    application = create_app(Settings(), shipped_catalogue())
    application.state.draining.set()
    answer = get(httpx.ASGITransport(application), "/readyz")
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "draining", "5")
    assert "database" not in answer.text


def test_a_request_keeps_an_id_of_its_own(ask: Ask) -> None:
    answer = ask("GET", "/no-such-path", headers={"X-Request-Id": "job-17.step_3"})
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "job-17.step_3"


@pytest.mark.parametrize("unsafe", ["two words", "<script>", "x" * 65, "a\tb"])
def test_an_unsafe_id_is_replaced(ask: Ask, unsafe: str) -> None:
    assert ask("GET", "/healthz", headers={"X-Request-Id": unsafe}).headers["x-request-id"] != unsafe


def test_a_defect_is_a_problem_document_without_a_stack(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = get(httpx.ASGITransport(RequestMiddleware(ErrorMiddleware(broken))))
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "CANARY" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert answer.json()["request_id"] in caplog.text


def test_a_defect_after_the_answer_began_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        get(httpx.ASGITransport(RequestMiddleware(ErrorMiddleware(broken_midway))))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/no-such-path", 404, "not_found"),
        ("GET", "/v1/estimates/", 404, "not_found"),
        ("GET", "/web/no-such-file", 404, "not_found"),
        ("GET", "/web/../api/app.py", 404, "not_found"),
        ("PUT", "/v1/estimates", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
        ("POST", "/v1/choices", 405, "method_not_allowed"),
        ("PUT", "/docs", 405, "method_not_allowed"),
    ],
)
def test_what_the_router_refuses_is_a_problem_document(
    ask: Ask, method: str, path: str, status: int, code: str
) -> None:
    answer = ask(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"/docs#{code}"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
def test_the_methods_of_a_path_are_named(ask: Ask, method: str) -> None:
    assert ask(method, "/v1/estimates").headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert ask(method, "/healthz").headers["allow"] == "GET, HEAD, OPTIONS"


def test_options_is_answered_without_a_body(ask: Ask) -> None:
    answer = ask("OPTIONS", "/v1/memory")
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/no-such-path", "GET /docs lists every operation"),
        ("/v1/gpus?limit=0", "give 1 to 1000"),
        ("/v1/cell/fits?unit=GiB", "this metric is a plain number; leave unit out"),
        ("/v1/cell/fits?gpus=8;16", "for several values ask /v1/cell/table.csv"),
    ],
)
def test_a_refusal_says_the_way_on(ask: Ask, path: str, said: str) -> None:
    answer = ask("GET", path)
    assert said in answer.text
    assert "GiB" not in answer.text
    assert "8;16" not in answer.text


WRONG = {"no-such-parameter": "1"}
"""Refused by every operation, whatever else it takes."""


class Written(logging.Handler):
    """Keeps what is logged as both kinds of lines."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text: list[str] = []
        self.json: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.text.append(AsText().format(record))
        self.json.append(json.loads(AsJson().format(record)))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    handler, log = Written(), logging.getLogger("service")
    monkeypatch.setattr(log, "level", logging.DEBUG)
    logging.getLogger("service.api.envelope").setLevel(logging.DEBUG)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    logging.getLogger("service.api.envelope").setLevel(logging.NOTSET)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Method and a path of every operation."""
    for path, methods in document["paths"].items():
        place = path.replace("{token}", ADMISSION_TOKEN).replace("{", "").replace("}", "")
        yield from ((method.upper(), place) for method in methods)


def test_every_operation_names_its_request_everywhere(ask: Ask, document: dict[str, Any], written: Written) -> None:
    asked = list(operations(document))
    refused = 0
    for number, (method, path) in enumerate(asked):
        for sent, query in ((f"good-{number}", {}), (f"wrong-{number}", WRONG)):
            if "events" in path and not query:
                continue  # a stream of what is not there is refused all the same
            answer = ask(method, path, params=query, headers={"X-Request-Id": sent})
            assert answer.headers["x-request-id"] == sent, path
            assert answer.headers["x-api-version"] == __version__ == document["info"]["version"]
            if answer.headers.get("content-type") == "application/problem+json":
                assert answer.json()["request_id"] == sent, path
                refused += 1
            own = [line for line in written.json if line.get("request_id") == sent]
            assert [line["status"] for line in own if "status" in line] == [answer.status_code], path
    assert refused > len(asked)
    assert all(line.endswith("]") or "\n" in line for line in written.text)
    assert all("request_id" in line for line in written.json)


def test_a_failure_is_told_with_its_stack_in_one_field(
    app: FastAPI, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("service.features.checks.routes.quick_check", broken)
    with asking(app) as together:
        answer = one_by_one(together)("POST", "/v1/check", json={}, headers={"X-Request-Id": "broken-1"})
    assert (answer.status_code, answer.json()["request_id"]) == (500, "broken-1")
    failure, request = written.json
    assert (failure["level"], failure["request_id"], request["request_id"]) == ("error", "broken-1", "broken-1")
    assert failure["traceback"].endswith("ZeroDivisionError: two\nlines")
    assert (request["level"], request["status"], request["method"], request["path"]) == (
        "warning", 500, "POST", "/v1/check",
    )  # fmt: skip


def test_no_key_is_written_wherever_it_stands(ask: Ask, written: Written) -> None:
    ask("GET", "/v1/cell/fits", params={"key": "tck_0.secret", "gpu": "tck_1.secret"})
    logging.getLogger("service.tests").warning("look: %s", "tck_2.secret")
    assert len(written.text) == 2
    assert "secret" not in "".join(written.text) + json.dumps(written.json)
    assert written.json[0]["path"] == "/v1/cell/fits?key=***&gpu=***"
