"""An answer is repeated byte for byte under its catalogue revision, and the log of changes is complete."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI

from service.answers.rows import Cell
from service.api import background
from service.catalogue import Catalogue, Snapshot
from service.errors import Unreachable
from service.features.cells import cells
from service.store.engine import open_engine
from service.store.history import History, Rows, load_catalogue
from tests.api.asking import QUESTION, Ask, paged_items
from tests.echoes import beyond_echo

GPU = {"memory_bytes": 96e9, "memory_bytes_per_s": 3e12, "bf16_flop_per_s": 8e14, "board_watts": 500}
FLAT = {"model": "llama-3.1-8b", "sequence_length": "4096", "gpus": "8"}

PARTS = ("estimates", "memory", "flops", "gpu-hours")


@pytest.fixture
def slug() -> str:
    return f"rev-{uuid4().hex[:12]}"


def test_an_answer_is_given_again_under_its_catalogue(own: Ask, own_app: FastAPI, slug: str) -> None:
    own("POST", "/v1/gpus", json={"slug": slug, **GPU})
    question = {**QUESTION, "cluster": {"gpu": slug, "gpus": 8}}
    flat = {**FLAT, "gpu": slug}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        *(
            ("POST", f"/v1/{part}", {"json": question})
            for part in ("estimates", "memory", "flops", "gpu-hours", "check")
        ),
        *(("GET", f"/v1/{part}", {"params": flat}) for part in PARTS),
        ("GET", "/v1/cell/device_peak_bytes", {"params": flat}),
        ("GET", "/v1/cell/usable_bytes", {"params": flat}),
    ]
    first = [own(method, path, **request) for method, path, request in requests]
    assert {answer.status_code for answer in first} == {200}
    revision = first[0].json()["versions"]["catalogue"]
    assert revision == own_app.state.history.view("team").revision

    own("PATCH", f"/v1/gpus/{slug}", json={"usable_bytes": 50e9, "bf16_flop_per_s": 1e14}, headers={"If-Match": "*"})
    changed = [own(method, path, **request) for method, path, request in requests]
    assert changed[0].json()["versions"]["catalogue"] == own_app.state.history.view("team").revision != revision
    assert changed[0].json()["memory"]["usable_bytes"] == 50e9
    own("DELETE", f"/v1/gpus/{slug}", headers={"If-Match": "*"})
    assert own("POST", "/v1/estimates", json=question).status_code == 422

    forgetful = History(own_app.state.engine, own_app.state.history.view("team"))
    for history in (own_app.state.history, forgetful):
        own_app.state.history, kept = history, own_app.state.history
        for (method, path, request), answer in zip(requests, first, strict=True):
            params = {**request.get("params", {}), "rev": revision}
            assert own(method, path, **{**request, "params": params}).content == answer.content, path
        own_app.state.history = kept


def test_an_unknown_revision_says_where_the_known_ones_are(own: Ask) -> None:
    for rev in ("0123456789ab", "c4n4ry", "-1"):
        for method, path, request in (
            ("POST", "/v1/estimates", {"json": QUESTION}),
            ("POST", "/v1/check", {"json": QUESTION}),
            ("GET", "/v1/cell/gpu_hours", {}),
        ):
            answer = own(method, f"{path}?rev={rev}", **request)
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_revision")
            assert "/v1/catalogue/revisions" in answer.json()["detail"]
            assert "c4n4ry" not in beyond_echo(answer)
        assert own("GET", f"/v1/cell/gpu_hours?rev={rev}&on_error=text").text.startswith("#ERR unknown_revision: ")
        assert own("GET", f"/v1/cell/why?rev={rev}").text.startswith("unknown_revision: ")
    for query in ("rev=a&rev=b", "rev="):
        answer = own("POST", f"/v1/memory?{query}", json=QUESTION)
        assert (answer.status_code, answer.json()["errors"][0]["parameter"]) == (422, "rev")


def test_every_change_is_logged_once_in_order(own: Ask, own_app: FastAPI, slug: str) -> None:
    own("POST", "/v1/rate-cards", json={"slug": slug, "rates": [{"gpu": "h100", "usd_per_gpu_hour": 2}]})
    own("PATCH", f"/v1/rate-cards/{slug}", json={"note": "x"}, headers={"If-Match": "*"})
    own("DELETE", f"/v1/rate-cards/{slug}", headers={"If-Match": "*"})
    items = paged_items(own, "/v1/catalogue/revisions?limit=200")
    assert own("GET", "/v1/catalogue/revisions?limit=2").json()["items"] == items[:2]
    numbers = [item["number"] for item in items]
    assert numbers == list(range(len(numbers), 0, -1))
    told = [(item["owner"], item["summary"]) for item in items[:3]]
    assert told == [("team", f"rate card {slug} {done}") for done in ("deleted", "changed", "created")]
    assert items[-1]["owner"] == "catalogue"
    assert items[0]["catalogue"] == own_app.state.history.view("team").revision == items[3]["catalogue"]
    assert all(item["made_at"].endswith("Z") for item in items)


@pytest.mark.parametrize("query", ["cursor=abc", "cursor=YWJj", "limit=0", "x=1"])
def test_a_wrong_page_is_refused(own: Ask, query: str) -> None:
    assert own("GET", f"/v1/catalogue/revisions?{query}").status_code == 422


def test_changes_of_another_process_are_taken_over(
    own_app: FastAPI, own: Ask, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WRITE_SECONDS", 0.05)
    elsewhere = History(own_app.state.engine, load_catalogue(own_app.state.engine))

    def written_elsewhere() -> bool:
        model = own_app.state.history.view("team").models["gpt2-124m"]
        row = replace(model, slug=slug, name=slug, aliases=(), hugging_face_id=None, owner="team")
        elsewhere.change("team", lambda _: Rows(put=(row,)))
        deadline = time.monotonic() + 20
        while slug not in own_app.state.history.view("team").models and time.monotonic() < deadline:
            time.sleep(0.02)
        return slug in own_app.state.history.view("team").models

    async def run() -> None:
        async with own_app.router.lifespan_context(own_app):
            assert await asyncio.to_thread(written_elsewhere)

    asyncio.run(run())
    assert own_app.state.history.view("team").revision == elsewhere.view("team").revision
    assert "catalogue" not in {thread.name for thread in threading.enumerate()}
    assert own("GET", f"/v1/models/{slug}").json()["owner"] == "team"
    own("DELETE", f"/v1/models/{slug}", headers={"If-Match": "*"})


def test_a_database_that_is_down_hurts_no_estimate(own: Ask, own_app: FastAPI) -> None:
    gone = open_engine("postgresql://somebody@127.0.0.1:1/costs")
    kept = own_app.state.history
    own_app.state.history = History(gone, own_app.state.history.view("team"))
    with pytest.raises(Unreachable):
        own_app.state.history.refresh()
    assert own("POST", "/v1/estimates", json=QUESTION).status_code == 200
    for answer in (
        own("POST", "/v1/gpus", json={"slug": "lost", **GPU}),
        own("DELETE", "/v1/gpus/lost", headers={"If-Match": "*"}),
        own("GET", "/v1/catalogue/revisions"),
        own("GET", "/v1/gpus/h100?revision=1"),
        own("POST", "/v1/estimates?rev=0123456789ab", json=QUESTION),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert answer.headers["retry-after"]
    flat = {**FLAT, "gpu": "h100", "rev": "0123456789ab", "on_error": "text"}
    told = [own("GET", f"/v1/cell/{cell}", params=flat) for cell in ("step_seconds", "why")]
    own_app.state.history = kept
    gone.dispose()
    assert [answer.text.partition(": ")[0] for answer in told] == ["#ERR not_ready", "not_ready"]
    for answer in told:
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        now = own("GET", answer.url.path, params=answer.url.params, headers={"If-None-Match": answer.headers["etag"]})
        assert (now.status_code, "unknown_revision" in now.text) == (200, True)


def test_a_cell_is_marked_with_the_catalogue_that_answered(
    own: Ask, own_app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"params": {**FLAT, "gpu": "h100"}}
    before, kept, answer = own("GET", "/v1/cell/step_seconds", **asked), own_app.state.history.view("team"), cells.cell
    before_it = own_app.state.history.snapshot

    def while_it_changes(*inputs: Any) -> Cell:
        own_app.state.history.snapshot = Snapshot(replace(kept, revision="0123456789ab"))
        return answer(*inputs)

    with monkeypatch.context() as patch:
        patch.setattr(cells, "cell", while_it_changes)
        again = own("GET", "/v1/cell/step_seconds", **asked)
    after = own("HEAD", "/v1/cell/step_seconds", **asked)
    own_app.state.history.snapshot = before_it
    assert again.headers["etag"] == before.headers["etag"] != after.headers["etag"]


def test_without_a_database_nothing_is_changed() -> None:
    history = History(None, Catalogue.from_rows(()))
    with pytest.raises(Unreachable):
        history.change("team", lambda _: Rows())


def test_a_look_that_fails_is_said_once_and_taken_again(
    own_app: FastAPI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "WRITE_SECONDS", 0.01)
    looks: list[int] = []
    enough = threading.Event()

    def look() -> None:
        looks.append(1)
        if len(looks) > 4:
            enough.set()
        raise Unreachable

    monkeypatch.setattr(own_app.state.history, "refresh", look)

    async def run() -> None:
        async with own_app.router.lifespan_context(own_app):
            assert await asyncio.to_thread(enough.wait, 20)

    asyncio.run(run())
    assert caplog.text.count("the catalogue in memory is not refreshed") == 1
