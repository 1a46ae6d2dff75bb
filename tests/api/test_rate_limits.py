"""Rate limits and their headers, per caller, in one process and across replicas."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from sqlalchemy import func, select

from service.api.access.key_rules import KeyLimits, KeyRequest, NewKey, limit, make_key
from service.api.limits.rate_limits import MOST_CALLERS, Limit, LocalCounts, Quota, RateLimits, limit_of
from service.api.limits.shared_limits import SharedCounts
from service.api.metrics import Metrics
from service.app import rate_limits_of
from service.catalogue import shipped_catalogue
from service.errors import StartupError
from service.openapi.document import problem_example
from service.settings import Settings
from service.store.engine import reading
from service.store.tables import SWEEPS
from tests.api.asking import QUESTION, Ask
from tests.databases import prepared
from tests.features.sweeps.test_routes import BODY as SWEPT
from tests.fixtures import application, asking, one_by_one
from tests.redis_server import RedisServer, running

FEW: dict[str, Any] = {"requests_per_minute": 60, "request_burst": 5}
LIMIT = Limit(burst=5, interval_seconds=1.0)
COSTS = (1, 2, 3, 2, 1)
CELL = "/v1/cell/fits?model=llama-3.1-8b&gpu=h100&gpus=8&sequence_length=8192"
POLICY = '"default";q=5;w=5'


def made(url: str, **settings: Any) -> tuple[FastAPI, dict[str, str]]:
    """An application, and the headers of two keys to it."""
    engine = prepared(url, shipped_catalogue())
    keys = {name: make_key(engine, KeyRequest(name=name, scopes=["admin"])).presented for name in ("one", "other")}
    engine.dispose()
    app = application(Settings(database_url=url, **settings))
    return app, {name: f"Bearer {key}" for name, key in keys.items()}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('limits') / 'traincost.db'}"


@pytest.fixture
def limited(database: str) -> Iterator[tuple[Ask, dict[str, str], FastAPI]]:
    app, keys = made(database, **FEW)
    with asking(app) as together:
        yield one_by_one(together), keys, app
    app.state.engine.dispose()


def test_a_key_is_told_what_is_left_and_refused_beyond_it(limited: tuple[Ask, dict[str, str], FastAPI]) -> None:
    ask, keys, app = limited
    found = [ask("GET", "/v1/choices", headers={"Authorization": keys["one"]}) for _ in range(6)]
    assert [answer.status_code for answer in found] == [200] * 5 + [429]
    assert {answer.headers["ratelimit-policy"] for answer in found} == {POLICY}
    left = [re.fullmatch(r'"default";r=(\d+);t=(\d+)', answer.headers["ratelimit"]) for answer in found]
    assert [int(match[1]) for match in left if match] == [4, 3, 2, 1, 0, 0]
    assert [int(match[2]) for match in left if match] == [1, 2, 3, 4, 5, 5]
    refusal = found[-1]
    assert (refusal.json()["code"], refusal.headers["retry-after"]) == ("rate_limited", "1")
    assert refusal.json() | {"request_id": ""} == problem_example("rate_limited") | {"request_id": ""}
    assert ask("GET", "/v1/choices", headers={"Authorization": keys["other"]}).status_code == 200
    assert b'rate_limit_refusals_total{policy="default"} 1.0' in app.state.metrics.exposed("", None)


def test_who_sends_no_key_is_counted_by_address(limited: tuple[Ask, dict[str, str], FastAPI]) -> None:
    ask, keys, app = limited
    assert [ask("GET", "/v1/choices").status_code for _ in range(7)] == [401] * 5 + [429] * 2
    assert (
        ask("GET", "/v1/gpus", headers={"Authorization": "Bearer tck_x.y"})
        .headers["ratelimit-policy"]
        .startswith('"address"')
    )
    assert ask("GET", "/v1/choices", headers={"Authorization": keys["one"]}).status_code == 200
    told = ask("GET", f"{CELL}&on_error=text")
    assert (told.status_code, told.text.startswith("#ERR rate_limited: ")) == (200, True)
    assert app.state.metrics.rate_limit_refusals.labels("address").collect()[0].samples[0].value == 4


def test_probes_pages_and_workers_are_never_refused(limited: tuple[Ask, dict[str, str], FastAPI]) -> None:
    ask, _, _ = limited
    for _ in range(7):
        for path in ("/healthz", "/readyz", "/docs", "/"):
            answer = ask("GET", path)
            assert answer.status_code == 200
            assert "ratelimit" not in answer.headers
        assert ask("POST", "/v1/worker/claim", json={}).status_code == 401


def test_an_open_service_of_one_machine_limits_nobody(ask: Ask) -> None:
    assert "ratelimit" not in ask("GET", "/v1/choices").headers


def test_an_open_service_that_others_reach_limits_addresses(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'traincost.db'}"
    settings = Settings(database_url=url, host="0.0.0.0", insecure=True, **FEW)  # noqa: S104 - that is what is tried
    app = application(settings)
    with asking(app) as together:
        answer = one_by_one(together)("GET", "/v1/choices")
    app.state.engine.dispose()
    assert answer.headers["ratelimit-policy"] == '"address";q=5;w=5'


def test_a_limit_of_nothing_is_none(database: str) -> None:
    assert limit_of(Settings(database_url=database, requests_per_minute=0)) is None
    limits = rate_limits_of(Settings(database_url=database, requests_per_minute=0), Metrics())
    assert limits.of_address("192.0.2.1") is limits.of_caller("tck_a", None) is None


def test_a_sheet_recalculates_at_once_under_the_shipped_limit() -> None:
    limit = limit_of(Settings(database_url="sqlite:////x.db"))
    assert limit is not None
    assert limit.burst >= 10 * 300
    assert limit.window_seconds * 12_000 == 60 * limit.burst


def test_what_is_missing_for_redis_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.limits.rate_limits.find_spec", lambda _: None)
    with pytest.raises(StartupError, match="replicas"):
        rate_limits_of(Settings(database_url="sqlite:////x.db", redis_url="redis://127.0.0.1:1/0"), Metrics())


def test_the_contract_describes_the_headers_of_limits(document: dict[str, Any]) -> None:
    assert {"RateLimit", "RateLimit-Policy", "Retry-After"} <= document["components"]["responses"]["Problem"][
        "headers"
    ].keys()
    assert all("default" in one["responses"] for methods in document["paths"].values() for one in methods.values())


def test_a_bucket_leaks_and_many_callers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    counts = LocalCounts(lambda: now[0])
    assert [counts.take("a", LIMIT).remaining for _ in range(6)] == [4, 3, 2, 1, 0, 0]
    now[0] += 2.5
    assert [counts.take("a", LIMIT).retry_seconds for _ in range(3)] == [0.0, 0.0, 0.5]
    assert MOST_CALLERS >= 10_000
    monkeypatch.setattr("service.api.limits.rate_limits.MOST_CALLERS", 2)
    assert [counts.take(name, LIMIT).remaining for name in ("b", "c", "a")] == [4, 4, 4]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


def test_replicas_count_together_as_one_process_would(redis: RedisServer) -> None:
    async def asked() -> list[Any]:
        one, other = SharedCounts(redis.url), SharedCounts(redis.url)
        found = [
            await (one if number % 2 else other).take("default:together", LIMIT, cost)
            for number, cost in enumerate(COSTS)
        ]
        await one.close()
        await other.close()
        return found

    alone = LocalCounts()
    own = [alone.take("x", LIMIT, cost) for cost in COSTS]
    found = asyncio.run(asked())
    assert [standing.remaining for standing in found] == [standing.remaining for standing in own]
    assert [standing.retry_seconds > 0 for standing in found] == [False, False, True, False, True]
    assert found[-1].retry_seconds == pytest.approx(own[-1].retry_seconds, abs=0.5)


def test_without_redis_each_replica_counts_alone_and_says_so_once(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    now, fallen = [0.0], []

    async def asked() -> tuple[list[Any], float]:
        shared = SharedCounts(redis.url, lambda: now[0])
        limits = RateLimits(Settings(database_url="sqlite://", **FEW), shared, lambda: fallen.append(1))
        away = limits.of_caller("away", None)
        assert away is not None
        await limits.take(away)
        redis.stop()
        began = perf_counter()
        found = []
        for _ in range(3):
            found.append(await limits.take(away))
            now[0] += 2.0
        seconds = perf_counter() - began
        redis.start()
        while found[-1].remaining != FEW["request_burst"] - 1:  # Redis is empty: the first that it counts
            await asyncio.sleep(0.01)
            now[0] += 2.0
            found.append(await limits.take(away))
        await limits.close()
        return found, seconds

    with caplog.at_level(logging.WARNING):
        found, seconds = asyncio.run(asked())
    assert [standing.remaining for standing in found[:3]] == [4, 3, 2]
    assert len(fallen) == len(found) - 1
    assert seconds < 5
    said = [record.message for record in caplog.records if record.name == "service.api.limits.shared_limits"]
    assert [line.partition(",")[0] for line in said] == ["Redis does not answer", "Redis answers again"]


def test_while_redis_hangs_only_the_first_request_waits(redis: RedisServer) -> None:
    now = [0.0]

    async def asked() -> list[bool]:
        shared = SharedCounts(redis.url, lambda: now[0])
        first = await shared.take("default:hanging", LIMIT)
        assert first is not None
        with redis.hanging():
            assert await shared.take("default:hanging", LIMIT) is None
            found = []
            for _ in range(3):
                now[0] += 2.0  # a ping is due, and the one before may be on its way
                task = asyncio.create_task(shared.take("default:hanging", LIMIT))
                await asyncio.sleep(0)
                found.append(task.done() and task.result() is None)
                await task
        while await shared.take("default:hanging", LIMIT) is None:
            now[0] += 2.0
            await asyncio.sleep(0.01)
        await shared.close()
        return found

    assert asyncio.run(asked()) == [True] * 3


def test_the_application_counts_in_redis(redis: RedisServer, database: str) -> None:
    app, keys = made(database, redis_url=redis.url, **FEW)

    async def asked() -> list[int]:
        headers = {"Authorization": keys["one"]}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers
        ) as client:
            found = [(await client.get("/v1/choices")).status_code for _ in range(6)]
        await app.state.rate_limits.close()
        return found

    found = asyncio.run(asked())
    app.state.engine.dispose()
    assert found == [200] * 5 + [429]


def test_a_clock_of_redis_that_is_set_back_locks_no_caller_out(redis: RedisServer, database: str) -> None:
    app, keys = made(database, redis_url=redis.url, **FEW)

    async def asked() -> httpx.Response:
        headers = {"Authorization": keys["one"]}
        async with (
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers
            ) as client,
            Redis.from_url(redis.url) as direct,
        ):
            await client.get("/v1/choices")
            async for name in direct.scan_iter("traincost:limit:*"):
                empty_at = float(await direct.get(name) or 0)
                await direct.set(name, empty_at + 5 * 3600)
            answer = await client.get("/v1/choices")
        await app.state.rate_limits.close()
        return answer

    answer = asyncio.run(asked())
    app.state.engine.dispose()
    window = re.search(r";w=(\d+)", answer.headers["ratelimit-policy"])
    assert window is not None
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= int(window[1])


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
def key_limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
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


def test_what_a_key_does_not_say_is_the_services(key_limited: Limited) -> None:
    told = {
        (30, 7): '"key";q=7;w=14',
        (None, 300): '"key";q=300;w=300',
        (600, None): '"key";q=5;w=1',
        (None, None): '"default";q=5;w=5',
    }
    for (per_minute, burst), said in told.items():
        answer = key_limited.by(key_limited.key(per_minute, burst), "GET", "/v1/choices")
        assert (answer.status_code, policy(answer)) == (200, said)


def test_a_sheet_asks_for_all_of_its_cells_at_once_where_its_key_allows_that(key_limited: Limited) -> None:
    sheet, other = key_limited.key(per_minute=60, burst=40), key_limited.key()
    assert [key_limited.by(sheet, "GET", "/v1/choices").status_code for _ in range(41)] == [200] * 40 + [429]
    assert [key_limited.by(other, "GET", "/v1/choices").status_code for _ in range(6)] == [200] * 5 + [429]
    assert b'rate_limit_refusals_total{policy="key"} 1.0' in key_limited.app.state.metrics.exposed("", None)


def test_a_key_of_any_number_is_never_refused_and_told_no_limit(key_limited: Limited) -> None:
    free = key_limited.key(per_minute=0)
    answers = [key_limited.by(free, "GET", "/v1/choices") for _ in range(12)]
    assert {answer.status_code for answer in answers} == {200}
    assert not any("ratelimit" in answer.headers for answer in answers)
    assert key_limited.batch(free, 20).status_code == 200


def test_a_key_is_limited_where_no_other_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'traincost.db'}"
    app = application(Settings(database_url=url, requests_per_minute=0))
    with asking(app) as together:
        service = Limited(app, one_by_one(together))
        slow, free = service.key(per_minute=60, burst=2), service.key()
        assert [service.by(slow, "GET", "/v1/choices").status_code for _ in range(3)] == [200, 200, 429]
        assert "ratelimit" not in service.by(free, "GET", "/v1/choices").headers
    app.state.engine.dispose()


def test_limits_that_are_changed_hold_for_running_services(key_limited: Limited) -> None:
    key = key_limited.key(per_minute=60, burst=2)
    for per_minute, burst, said in ((60, 9, '"key";q=9;w=9'), (90, 9, '"key";q=9;w=6'), (None, None, '"default"')):
        limits = KeyLimits(requests_per_minute=per_minute, request_burst=burst)
        limit(key_limited.app.state.engine, key.key.id, limits)
        key_limited.app.state.keys.refresh()
        assert policy(key_limited.by(key, "GET", "/v1/choices")).startswith(said)


def test_a_batch_costs_as_many_as_it_has_questions(key_limited: Limited) -> None:
    key = key_limited.key(per_minute=6, burst=20)
    assert [left(key_limited.batch(key, questions)) for questions in (1, 0, 10)] == [19, 18, 8]
    refused = key_limited.batch(key, 12)
    assert (refused.status_code, refused.json()["code"], left(refused)) == (429, "rate_limited", 7)
    assert "12 requests" in refused.json()["detail"]
    assert 40 < int(refused.headers["retry-after"]) <= 50
    assert key_limited.batch(key, 7).status_code == 200


def test_tables_cost_as_many_as_they_have_rows(key_limited: Limited) -> None:
    key = key_limited.key(per_minute=6, burst=40)
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
        answer = key_limited.by(key, method, path, **request)
        rest -= cost
        assert (answer.status_code, left(answer)) == (200, rest), (path, answer.text[:300])
    refused = key_limited.by(
        key, "POST", "/v1/sensitivity", json={**varied, "vary": {"layout.tensor": [*range(1, 31)]}}
    )
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert "31 requests" in refused.json()["detail"]


def test_a_batch_larger_than_a_burst_needs_all_of_it(key_limited: Limited) -> None:
    key = key_limited.key(per_minute=60, burst=20)
    answer = key_limited.batch(key, 30)
    assert (answer.status_code, len(answer.json()["answers"]), left(answer)) == (200, 30, 0)
    again = key_limited.batch(key_limited.key(per_minute=60, burst=1), 30)
    assert (again.status_code, left(again)) == (200, 0)


def test_a_sweep_costs_as_many_as_it_has_rows_and_is_not_kept_where_that_is_too_many(key_limited: Limited) -> None:
    key = key_limited.key(per_minute=6, burst=80)
    made = key_limited.by(key, "POST", "/v1/sweeps", json=SWEPT)
    rows = made.json()["rows"]["total"]
    assert 40 < rows < 80
    assert (made.status_code, left(made)) == (202, 80 - rows)
    assert key_limited.by(key, "POST", "/v1/sweeps", json=SWEPT).status_code == 429
    with reading(key_limited.app.state.engine) as connection:
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


def test_limits_of_a_key_without_any_are_those_of_the_settings(key_limited: Limited) -> None:
    settings = key_limited.app.state.settings
    assert limit_of(settings, key_limited.key().key) == limit_of(settings)
