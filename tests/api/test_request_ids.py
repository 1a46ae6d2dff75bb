"""The request id of every operation, in the header, in problems and in each line of the log."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from service import __version__
from service.logs import AsJson, AsText
from tests.api.asking import ADMISSION_TOKEN, Ask
from tests.fixtures import asking, one_by_one

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
