"""The id that a check gives leads to its estimate, the same byte for byte; no scheduler waits for the database."""

from dataclasses import replace

import pytest
from fastapi import FastAPI
from pydantic_core import to_json

from service.api import background
from service.api.background import CheckedQuestions
from service.errors import Unreachable
from service.features.estimates import store
from service.store.engine import writing
from service.store.scenarios import CheckedQuestion, read_checked_question, store_checked_questions
from tests.api.asking import ADMISSION_TOKEN, QUESTION, Ask, example_of
from tests.api.own_bodies import TINY


def asked(estimate_id: str) -> CheckedQuestion:
    return CheckedQuestion(estimate_id=estimate_id, question={"model": "größer"}, formulas="1", catalogue="c")


@pytest.mark.parametrize("question", [QUESTION, {**QUESTION, "model": "llama-3.1-70b"}])
def test_a_check_can_be_read_as_an_estimate(question: dict[str, object], kept: Ask) -> None:
    check = kept("POST", "/v1/check", json={**question, "limits": {"days": 1}}).json()
    stored = kept("GET", f"/v1/estimates/{check['id']}")
    assert stored.status_code == 200
    assert stored.content == kept("POST", "/v1/estimates", json=question).content


def test_what_was_checked_is_read_while_somebody_writes_for_long(kept_app: FastAPI, kept: Ask) -> None:
    question = {**QUESTION, "recipe": {**QUESTION["recipe"], "training_tokens": 987654321}}
    with writing(kept_app.state.engine):  # on SQLite nobody else writes meanwhile
        check = kept("POST", "/v1/check", json=question).json()
        assert kept("GET", f"/v1/estimates/{check['id']}").status_code == 200


def test_what_hooks_ask_can_be_read_too(kept: Ask) -> None:
    slurm = kept("POST", "/v1/adapters/slurm/check", json=example_of("createSlurmCheck")).text.splitlines()[2]
    job, sent = example_of("createKubernetesCheck"), example_of("createAdmissionReview")
    judged = kept("POST", "/v1/adapters/kubernetes/check", json=job).json()["check"]["id"]
    review = kept("POST", f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}", json=sent).json()
    for estimate_id in (slurm, judged, review["response"]["auditAnnotations"]["estimate"]):
        assert kept("GET", f"/v1/estimates/{estimate_id}").json()["id"] == estimate_id


def test_facts_that_change_afterwards_change_nothing(own: Ask) -> None:
    check = own("POST", "/v1/check", json=QUESTION).json()
    before = own("GET", f"/v1/estimates/{check['id']}").content
    assert own("POST", "/v1/models", json={"slug": "checked-model", **TINY}).status_code == 201
    assert own("POST", "/v1/estimates", json=QUESTION).json()["id"] != check["id"]
    assert own("GET", f"/v1/estimates/{check['id']}").content == before


def test_other_formulas_answer_no_old_check(kept: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_once = {**QUESTION, "recipe": {**QUESTION["recipe"], "training_tokens": 123456789}}
    check = kept("POST", "/v1/check", json=asked_once).json()
    kept("GET", f"/v1/estimates/{check['id']}")
    monkeypatch.setattr(store, "FORMULAS_VERSION", "1999.1.1")
    answer = kept("GET", f"/v1/estimates/{check['id']}")
    assert answer.status_code == 404
    assert "1999.1.1" in answer.json()["detail"]


def test_what_cannot_be_written_waits_and_the_oldest_is_let_go(
    kept_app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise Unreachable("gone")

    monkeypatch.setattr(background, "MOST_WAITING_BYTES", 3 * len(to_json(asked("est_0").question)))
    engine = kept_app.state.engine
    questions = CheckedQuestions(engine)
    with monkeypatch.context() as gone:
        gone.setattr(background, "store_checked_questions", unreachable)
        for number in range(4):
            questions.keep(asked(f"est_{number}"))
            with pytest.raises(Unreachable):
                questions.write()
    questions.write()
    kept = [number for number in range(4) if read_checked_question(engine, f"est_{number}")]
    assert kept == [1, 2, 3]


def test_what_is_too_long_or_too_old_is_not_kept(kept_app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = kept_app.state.engine
    questions = CheckedQuestions(engine)
    questions.keep(replace(asked("est_long"), question={"model": "x" * background.MOST_BYTES}))
    questions.keep(asked("est_old"))
    questions.write()
    assert read_checked_question(engine, "est_long") is None
    questions.forget()
    assert read_checked_question(engine, "est_old") == asked("est_old")
    monkeypatch.setattr(background, "KEPT_DAYS", -1)
    questions.forget()
    assert read_checked_question(engine, "est_old") is None


def test_a_question_is_kept_once(kept_app: FastAPI) -> None:
    engine = kept_app.state.engine
    first, second = asked("est_a"), CheckedQuestion(estimate_id="est_a", question={}, formulas="2", catalogue="d")
    store_checked_questions(engine, [(first, "a")])
    store_checked_questions(engine, [(second, "b"), (second, "b")])
    assert [read_checked_question(engine, "est_a", whose) for whose in (None, "a", "b", "c")] == [first] * 3 + [None]
