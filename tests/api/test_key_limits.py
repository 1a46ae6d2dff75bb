"""Rate limits of a key, and requests that cost as many units as they hold questions."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import func, select

from service.api.access.key_rules import KeyLimits, KeyRequest, NewKey, limit, make_key
from service.api.limits.rate_limits import Limit, Quota, RateLimits, limit_of
from service.settings import Settings
from service.store.engine import reading
from service.store.tables import SWEEPS
from tests.api.asking import QUESTION, Ask
from tests.features.sweeps.test_routes import BODY as SWEPT
from tests.fixtures import application, asking, one_by_one

EVERYBODY: dict[str, Any] = {"requests_per_minute": 60, "request_burst": 5}
ONE = {"kind": "memory", "body": QUESTION}


class Limited:
    """A service whose keys may ask little, but where they say otherwise."""

    def __init__(self, app: FastAPI, ask: Ask) -> None:
        self.app, self.ask = app, ask

    def key(self, per_minute: int | None = None, burst: int | None = None) -> NewKey:
        limits = KeyLimits(requests_per_minute=per_minute, request_burst=burst)
        made = make_key(self.app.state.engine, KeyRequest(name="x", scopes=["write"], limits=limits))
        self.app.state.keys.refresh()
        return made

    def by(self, key: NewKey, method: str, path: str, **request: Any) -> Any:
        return self.ask(method, path, headers={"Authorization": f"Bearer {key.presented}"}, **request)

    def batch(self, key: NewKey, questions: int) -> Any:
        return self.by(key, "POST", "/v1/batch", json={"questions": [ONE] * questions})


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    url = f"sqlite:///{tmp_path_factory.mktemp('limits') / 'traincost.db'}"
    app = application(Settings(database_url=url, **EVERYBODY))
    with asking(app) as together:
        yield Limited(app, one_by_one(together))
    app.state.engine.dispose()


def policy(answer: Any) -> str:
    told: str = answer.headers["ratelimit-policy"]
    return told


def left(answer: Any) -> int:
    return int(answer.headers["ratelimit"].partition("r=")[2].partition(";")[0])


def test_what_a_key_does_not_say_is_the_services(limited: Limited) -> None:
    told = {
        (30, 7): '"key";q=7;w=14',
        (None, 300): '"key";q=300;w=300',
        (600, None): '"key";q=5;w=1',
        (None, None): '"default";q=5;w=5',
    }
    for (per_minute, burst), said in told.items():
        answer = limited.by(limited.key(per_minute, burst), "GET", "/v1/choices")
        assert (answer.status_code, policy(answer)) == (200, said)


def test_a_sheet_asks_for_all_of_its_cells_at_once_where_its_key_allows_that(limited: Limited) -> None:
    sheet, other = limited.key(per_minute=60, burst=40), limited.key()
    assert [limited.by(sheet, "GET", "/v1/choices").status_code for _ in range(41)] == [200] * 40 + [429]
    assert [limited.by(other, "GET", "/v1/choices").status_code for _ in range(6)] == [200] * 5 + [429]
    assert b'rate_limit_refusals_total{policy="key"} 1.0' in limited.app.state.metrics.exposed("", None)


def test_a_key_of_any_number_is_never_refused_and_told_no_limit(limited: Limited) -> None:
    free = limited.key(per_minute=0)
    answers = [limited.by(free, "GET", "/v1/choices") for _ in range(12)]
    assert {answer.status_code for answer in answers} == {200}
    assert not any("ratelimit" in answer.headers for answer in answers)
    assert limited.batch(free, 20).status_code == 200


def test_a_key_is_limited_where_no_other_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'traincost.db'}"
    app = application(Settings(database_url=url, requests_per_minute=0))
    with asking(app) as together:
        service = Limited(app, one_by_one(together))
        slow, free = service.key(per_minute=60, burst=2), service.key()
        assert [service.by(slow, "GET", "/v1/choices").status_code for _ in range(3)] == [200, 200, 429]
        assert "ratelimit" not in service.by(free, "GET", "/v1/choices").headers
    app.state.engine.dispose()


def test_limits_that_are_changed_hold_for_running_services(limited: Limited) -> None:
    key = limited.key(per_minute=60, burst=2)
    for per_minute, burst, said in ((60, 9, '"key";q=9;w=9'), (90, 9, '"key";q=9;w=6'), (None, None, '"default"')):
        limits = KeyLimits(requests_per_minute=per_minute, request_burst=burst)
        limit(limited.app.state.engine, key.key.id, limits)
        limited.app.state.keys.refresh()
        assert policy(limited.by(key, "GET", "/v1/choices")).startswith(said)


def test_a_batch_costs_as_many_as_it_has_questions(limited: Limited) -> None:
    key = limited.key(per_minute=6, burst=20)
    assert [left(limited.batch(key, questions)) for questions in (1, 0, 10)] == [19, 18, 8]
    refused = limited.batch(key, 12)
    assert (refused.status_code, refused.json()["code"], left(refused)) == (429, "rate_limited", 7)
    assert "12 requests" in refused.json()["detail"]
    assert 40 < int(refused.headers["retry-after"]) <= 50
    assert limited.batch(key, 7).status_code == 200


def test_tables_cost_as_many_as_they_have_rows(limited: Limited) -> None:
    key = limited.key(per_minute=6, burst=40)
    varied = {"question": ONE["body"], "vary": {"recipe.sequence_length": [1024, 2048, 4096]}}
    compared = {
        "question": {name: part for name, part in QUESTION.items() if name != "cluster"},
        "clusters": [{"gpu": "h100-sxm5-80gb", "gpus": gpus} for gpus in (8, 16)],
    }
    swept = {"model": "llama-3.1-8b", "gpu": "h100-sxm5-80gb", "gpus": "8", "sequence_length": "4096", "tp": "1;2;4"}
    asked = (
        ("POST", "/v1/sensitivity", {"json": varied}, 4),
        ("POST", "/v1/compare", {"json": compared}, 2),
        ("POST", "/v1/compare.csv", {"json": compared}, 2),
        ("GET", "/v1/cell/table.csv", {"params": swept}, 3),
        ("GET", "/v1/cell/table.csv", {"params": {**swept, "tp": "1"}}, 1),
    )
    rest = 40
    for method, path, request, cost in asked:
        answer = limited.by(key, method, path, **request)
        rest -= cost
        assert (answer.status_code, left(answer)) == (200, rest), (path, answer.text[:300])
    refused = limited.by(key, "POST", "/v1/sensitivity", json={**varied, "vary": {"layout.tensor": [*range(1, 31)]}})
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert "31 requests" in refused.json()["detail"]


def test_a_batch_larger_than_a_burst_needs_all_of_it(limited: Limited) -> None:
    key = limited.key(per_minute=60, burst=20)
    answer = limited.batch(key, 30)
    assert (answer.status_code, len(answer.json()["answers"]), left(answer)) == (200, 30, 0)
    again = limited.batch(limited.key(per_minute=60, burst=1), 30)
    assert (again.status_code, left(again)) == (200, 0)


def test_a_sweep_costs_as_many_as_it_has_rows_and_is_not_kept_where_that_is_too_many(limited: Limited) -> None:
    key = limited.key(per_minute=6, burst=80)
    made = limited.by(key, "POST", "/v1/sweeps", json=SWEPT)
    rows = made.json()["rows"]["total"]
    assert 40 < rows < 80
    assert (made.status_code, left(made)) == (202, 80 - rows)
    assert limited.by(key, "POST", "/v1/sweeps", json=SWEPT).status_code == 429
    with reading(limited.app.state.engine) as connection:
        assert connection.execute(select(func.count()).select_from(SWEEPS)).scalar_one() == 1


def test_whoever_waits_as_long_as_they_are_told_is_answered() -> None:
    now, limits = [0.0], RateLimits(Settings(database_url="sqlite://", **EVERYBODY))
    limits._own._clock = lambda: now[0]
    counted = Quota("default", "x", Limit(burst=5, interval_seconds=1.0))

    async def asked(cost: int) -> float:
        return (await limits.take(counted, cost)).retry_seconds

    assert asyncio.run(asked(4)) == 0.0
    now[0] = asyncio.run(asked(3))
    assert now[0] == pytest.approx(2.0)
    assert asyncio.run(asked(3)) == 0.0


def test_limits_of_a_key_without_any_are_those_of_the_settings(limited: Limited) -> None:
    settings = limited.app.state.settings
    assert limit_of(settings, limited.key().key) == limit_of(settings)
