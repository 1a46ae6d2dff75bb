"""An Idempotency-Key: one execution and one answer, however often and whenever the request arrives."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import delete, func, select, update

from service.api.access.key_rules import KeyRequest, make_key
from service.features.launch_checks import launch_checks
from service.store.engine import reading, writing
from service.store.tables import JOBS, REMEMBERED_ANSWERS
from tests.api.asking import AskTogether
from tests.features.launch_checks.test_routes import PATH, QUESTION
from tests.fixtures import NewUrl, asking, running

BODY = {"question": QUESTION, "probes": ["gemm"]}


@pytest.fixture
def app(fresh_app: FastAPI) -> FastAPI:
    with writing(fresh_app.state.engine) as connection:
        connection.execute(delete(JOBS))
        connection.execute(delete(REMEMBERED_ANSWERS))
    return fresh_app


@pytest.fixture
def together(app: FastAPI) -> Iterator[AskTogether]:
    with asking(app) as send:
        yield send


def posted(key: str | None, body: Any = None, **headers: str) -> dict[str, Any]:
    said = headers | ({} if key is None else {"Idempotency-Key": key})
    return {"method": "POST", "url": PATH, "json": BODY if body is None else body, "headers": said}


def jobs(app: FastAPI) -> int:
    with reading(app.state.engine) as connection:
        return int(connection.execute(select(func.count()).select_from(JOBS)).scalar_one())


def test_the_same_again_is_the_same_answer_and_one_job(app: FastAPI, together: AskTogether) -> None:
    first, again = (together([posted("k")])[0] for _ in range(2))
    reordered = together([posted("k", dict(reversed(BODY.items())))])[0]
    assert first.status_code == again.status_code == 202
    assert first.content == again.content == reordered.content
    assert first.headers["location"] == again.headers["location"]
    assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
    assert jobs(app) == 1


def test_without_a_key_each_is_its_own(app: FastAPI, together: AskTogether) -> None:
    together([posted(None)])
    together([posted(None)])
    assert jobs(app) == 2


def test_another_body_under_the_key_is_refused(app: FastAPI, together: AskTogether) -> None:
    together([posted("k")])
    (answer,) = together([posted("k", {**BODY, "probes": ["bandwidth"]})])
    assert (answer.status_code, answer.json()["code"]) == (422, "key_reused")
    assert jobs(app) == 1


def test_many_at_once_are_one(app: FastAPI, together: AskTogether) -> None:
    answers = together([posted("k") for _ in range(8)])
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert jobs(app) == 1


def test_a_refusal_is_not_remembered(app: FastAPI, together: AskTogether) -> None:
    assert together([posted("k", {})])[0].status_code == 422
    assert together([posted("k")])[0].status_code == 202
    assert jobs(app) == 1


def test_what_breaks_on_the_way_leaves_neither_job_nor_answer(
    app: FastAPI, together: AskTogether, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(launch_checks, "find_launch_check", lambda *_: 1 / 0)  # after everything was written
        assert together([posted("k")])[0].status_code == 500
        assert jobs(app) == 0
    assert together([posted("k")])[0].headers.get("idempotent-replayed") is None
    assert jobs(app) == 1


def test_a_day_later_the_key_is_new(app: FastAPI, together: AskTogether) -> None:
    together([posted("k")])
    gone = datetime.now(UTC) - timedelta(seconds=1)
    with writing(app.state.engine) as connection:
        connection.execute(update(REMEMBERED_ANSWERS).values(expires_at=gone))
    assert together([posted("k")])[0].headers.get("idempotent-replayed") is None
    assert jobs(app) == 2


@pytest.mark.parametrize("key", [b"", b"a b", "\u00e4".encode(), b"k" * 256])
def test_a_malformed_key_is_refused(app: FastAPI, together: AskTogether, key: bytes) -> None:
    (answer,) = together([{"method": "POST", "url": PATH, "json": BODY, "headers": {"Idempotency-Key": key}}])
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "malformed")
    assert jobs(app) == 0


def test_what_an_owner_asks_is_one_whichever_key_is_sent_with_it_and_another_owners_is_another(new_url: NewUrl) -> None:
    with running(new_url()) as app, asking(app) as together:
        wanted = [KeyRequest(name="x", scopes=["write"], owner=owner) for owner in ("one", "one", "two")]
        tokens = [make_key(app.state.engine, one).presented for one in wanted]
        app.state.keys.refresh()
        answers = [together([posted("k", None, Authorization=f"Bearer {one}")])[0] for one in tokens]
        first, same, other = (answer.json()["id"] for answer in answers)
        assert first == same != other
        assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, "true", None]
        assert [[row["id"] for row in _rows(together, token)] for token in tokens] == [[first], [first], [other]]


def _rows(together: AskTogether, token: str) -> list[dict[str, Any]]:
    asked = {"method": "GET", "url": PATH, "headers": {"Authorization": f"Bearer {token}"}}
    rows: list[dict[str, Any]] = together([asked])[0].json()["items"]
    return rows
