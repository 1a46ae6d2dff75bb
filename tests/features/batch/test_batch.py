"""POST /v1/batch: each question is answered, or refused, as the route of its kind would, whatever stands beside."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.answers.checks import MOST_QUESTIONS
from service.api.openapi import request_bodies
from service.features.batch.batch import ANSWERERS, AnsweredQuestion
from tests.api import computations
from tests.api.asking import QUESTION, Ask
from tests.api.replicated import client_of
from tests.api.test_contract import check
from tests.echoes import unquoted_of
from tests.fixtures import asking

PATHS = {
    "estimate": "/v1/estimates",
    "memory": "/v1/memory",
    "flops": "/v1/flops",
    "gpu-hours": "/v1/gpu-hours",
    "check": "/v1/check",
}
TOO_LARGE = {**QUESTION, "model": "llama-3.1-405b"}
BODIES: list[Any] = [
    QUESTION,
    TOO_LARGE,
    {**QUESTION, "layout": {"tensor": 3}},
    {**QUESTION, "model": "c4n4ry", "c4n4ry": 1},
    {},
    [QUESTION],
    None,
]
"""What may be asked: what fits and what does not, what is refused, and what is no object."""

SAME = {"X-Request-Id": "the-same"}
JSON = {"Content-Type": "application/json"}


def asked(kind: str, body: Any) -> dict[str, Any]:
    """A question; a check waits for no alternatives, which would be as many as there is time for."""
    unhurried = kind == "check" and isinstance(body, dict) and body
    return {"kind": kind, "body": {**body, "deadline_seconds": 0} if unhurried else body}


def together(*questions: Any) -> dict[str, Any]:
    return {"questions": list(questions)}


def answering(monkeypatch: pytest.MonkeyPatch, answered: Callable[..., list[AnsweredQuestion]]) -> None:
    """Questions are answered otherwise, by a function that other processes can import."""
    monkeypatch.setattr("service.features.batch.batch.answer_all", answered)


def test_every_kind_has_its_route() -> None:
    assert PATHS.keys() == ANSWERERS.keys()


def test_each_answer_is_that_of_the_route_of_its_kind(ask: Ask) -> None:
    questions = [asked(kind, body) for body in BODIES for kind in PATHS]
    batch = ask("POST", "/v1/batch", json=together(*questions), headers=SAME)
    assert (batch.status_code, batch.headers["content-type"]) == (200, "application/json")
    answers = batch.json()["answers"]
    assert len(answers) == len(questions)
    for question, answer in zip(questions, answers, strict=True):
        content = json.dumps(question["body"])
        alone = ask("POST", PATHS[question["kind"]], content=content, headers={**SAME, **JSON})
        assert (answer["status"], answer["body"]) == (alone.status_code, alone.json())
        assert alone.content in batch.content
    assert {answer["status"] for answer in answers} == {200, 400, 422}


def test_every_example_is_answered_as_the_contract_says(ask: Ask, document: dict[str, Any]) -> None:
    for name, example in request_bodies("createBatch").items():
        answer = ask("POST", "/v1/batch", json=example["value"])
        check(document, document["paths"]["/v1/batch"]["post"]["responses"]["200"], answer.json())
        refused = [one["body"]["errors"][0]["code"] for one in answer.json()["answers"] if one["status"] != 200]
        kinds = {one["kind"] for one in example["value"]["questions"]}
        assert kinds == ({*ANSWERERS} if name == "every-kind" else {"memory"})
        assert refused == ([] if name == "every-kind" else ["tensor_divides_heads"])


@pytest.mark.parametrize(
    ("question", "pointer", "code"),
    [
        ('"c4n4ry"', "", "not_an_object"),
        ("NaN", "", "not_an_object"),
        ("{}", "/body", "required"),
        ('{"body": {}}', "/kind", "required"),
        ('{"kind": "c4n4ry", "body": {}}', "/kind", "not_a_choice"),
        ('{"kind": ["memory"], "body": {}}', "/kind", "not_a_choice"),
        ('{"kind": 1e400, "body": {}}', "/kind", "not_finite"),
        ('{"kind": "memory", "body": {}, "c4n4ry": 1}', "/c4n4ry", "unknown_field"),
        ('{"kind": "memory", "body": {}, "kind": "check"}', "", "duplicate_key"),
        ('{"kind": "memory", "body": {"recipe": {"sequence_length": 1e400}}}', "/recipe/sequence_length", "not_finite"),
        ('{"kind": "memory", "body": {"model": "\\ud800"}}', "/model", "not_text"),
        ('{"kind": "memory", "body": {"layout": 1, "layout": 2}}', "", "duplicate_key"),
        ('{"kind": "memory", "body": ' + '{"a":' * 40 + "1" + "}" * 41, "/a" * 32, "too_deep"),
    ],
)
def test_a_wrong_question_leaves_its_neighbours_as_they_are(ask: Ask, question: str, pointer: str, code: str) -> None:
    good = json.dumps({"kind": "flops", "body": QUESTION})
    content = f'{{"questions": [{good}, {question}, {good}]}}'
    answer = ask("POST", "/v1/batch", content=content, headers=JSON)
    first, refused, last = answer.json()["answers"]
    assert (first["status"], refused["status"], last["status"]) == (200, 422, 200)
    assert [error["code"] for error in refused["body"]["errors"] if error["pointer"] == pointer] == [code]
    assert "c4n4ry" not in unquoted_of(refused)


def test_too_many_questions_are_refused_as_a_whole(ask: Ask) -> None:
    answer = ask("POST", "/v1/batch", json=together(*[{}] * (MOST_QUESTIONS + 1)))
    assert answer.status_code == 422
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [("/questions", "too_many")]


def test_as_many_as_are_allowed_are_answered_in_order(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, computations.repeated)
    numbered = [{"kind": "flops", "body": {"number": number}} for number in range(MOST_QUESTIONS)]
    answers = ask("POST", "/v1/batch", json=together(*numbered)).json()["answers"]
    assert [answer["body"]["number"] for answer in answers] == list(range(MOST_QUESTIONS))
    assert ask("POST", "/v1/batch", json=together()).json() == {"answers": []}


def test_an_earlier_catalogue_answers_too(ask: Ask) -> None:
    body = together({"kind": "memory", "body": QUESTION})
    first = ask("POST", "/v1/batch", json=body)
    revision = first.json()["answers"][0]["body"]["versions"]["catalogue"]
    assert ask("POST", f"/v1/batch?rev={revision}", json=body).content == first.content
    assert ask("POST", "/v1/batch?rev=000000000000", json=body).status_code == 404


def test_a_defect_is_that_of_one_question(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answering(monkeypatch, computations.divided)
    questions = [{"kind": "flops", "body": {"divisor": divisor}} for divisor in (1, 0, 2)]
    first, broken, last = ask("POST", "/v1/batch", json=together(*questions), headers=SAME).json()["answers"]
    assert (first["body"], broken["status"], last["body"]) == (1, 500, 0.5)
    assert (broken["body"]["code"], broken["body"]["request_id"]) == ("internal_error", "the-same")
    assert "ZeroDivisionError" in caplog.text


def test_others_are_answered_meanwhile(app: FastAPI) -> None:
    done: list[str] = []

    async def timed(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> None:
        await client.request(method, path, json=body)
        done.append(path)

    async def both() -> None:
        async with client_of(app) as client:
            body = together(*[{"kind": "flops", "body": QUESTION}] * 20)
            await asyncio.gather(timed(client, "POST", "/v1/batch", body), timed(client, "POST", "/v1/check", QUESTION))

    asyncio.run(both())
    assert done == ["/v1/check", "/v1/batch"]


def test_requests_take_turns(app: FastAPI, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, computations.written)
    bodies = [
        together(*[{"kind": "flops", "body": {"folder": str(tmp_path), "of": name}}] * 300) for name in ("a", "b")
    ]
    with asking(app) as send:
        send([{"method": "POST", "url": "/v1/batch", "json": body} for body in bodies])
    parts = (tmp_path / "begun").read_text().split()
    assert len(parts) == 2 * 19
    later = max(parts.index("a"), parts.index("b"))
    assert {*parts[later : later + 8]} == {"a", "b"}
