"""The same question under the same versions gives the same bytes; a deprecation is announced in advance."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi import FastAPI

from service.api import request_context
from service.api.request_context import DEPRECATED, Deprecation
from service.openapi.document import contract
from tests.api.asking import QUESTION, Ask
from tests.fixtures import application, settings_for

PARTS = ("estimates", "memory", "flops", "gpu-hours", "memory/timeline", "check")

OLD = Deprecation(
    since=datetime(2026, 11, 23, tzinfo=UTC), sunset=datetime(2028, 12, 1, tzinfo=UTC), successor="/v1/estimates"
)


@pytest.mark.parametrize("part", PARTS)
def test_the_same_question_is_the_same_answer_byte_for_byte(ask: Ask, part: str) -> None:
    first = ask("POST", f"/v1/{part}", json=QUESTION)
    other = dict(reversed(QUESTION.items()))
    assert first.status_code == 200
    assert ask("POST", f"/v1/{part}", json=other).content == first.content
    revision = first.json()["versions"]["catalogue"]
    if part != "memory/timeline":
        assert ask("POST", f"/v1/{part}?rev={revision}", json=QUESTION).content == first.content


def test_another_process_on_another_database_gives_the_same_bytes(ask: Ask, tmp_path: Any) -> None:
    from tests.fixtures import asking, one_by_one

    app = application(settings_for(f"sqlite:///{tmp_path / 'traincost.db'}"))
    with asking(app) as together:
        found = one_by_one(together)("POST", "/v1/estimates", json=QUESTION).content
    app.state.engine.dispose()
    assert found == ask("POST", "/v1/estimates", json=QUESTION).content


def test_every_answer_names_its_versions(ask: Ask) -> None:
    for part in PARTS:
        versions = ask("POST", f"/v1/{part}", json=QUESTION).json()["versions"]
        assert set(versions) >= {"formulas", "catalogue", "calibration"}, part


def test_nothing_is_about_to_go_unannounced(document: dict[str, Any], ask: Ask) -> None:
    known = {one["operationId"]: one for methods in document["paths"].values() for one in methods.values()}
    assert known.keys() >= DEPRECATED.keys()
    assert {name for name, one in known.items() if one.get("deprecated")} == set(DEPRECATED)
    assert all(one.since < one.sunset and one.successor in document["paths"] for one in DEPRECATED.values())
    assert "deprecation" not in ask("POST", "/v1/memory", json=QUESTION).headers


def test_what_is_about_to_go_says_when_and_what_to_ask_instead(
    app: FastAPI, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_context, "DEPRECATED", {"createMemory": OLD})
    for body, status in ((QUESTION, 200), ({}, 422)):
        answer = ask("POST", "/v1/memory", json=body)
        assert answer.status_code == status
        assert answer.headers["deprecation"] == "@1795392000"
        assert answer.headers["sunset"] == "Fri, 01 Dec 2028 00:00:00 GMT"
        assert answer.headers["link"] == '</v1/estimates>; rel="successor-version"'
    assert "deprecation" not in ask("POST", "/v1/flops", json=QUESTION).headers
    marked = contract(app)["paths"]
    assert json.dumps(marked).count('"deprecated": true') == 1
    assert marked["/v1/memory"]["post"]["deprecated"] is True
