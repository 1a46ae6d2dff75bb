"""A link opens one scenario, to whoever has it, until it ends or is revoked, and nothing else."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from sqlalchemy import insert

from service.api.access.credentials import link_token, unlisted_link_token
from service.api.access.key_rules import KeyRequest, NewKey, make_key, revoke
from service.api.background import REFRESH_SECONDS
from service.store.engine import writing
from service.store.keys import revoke_unlisted_links
from service.store.tables import SERVER_SECRETS
from tests.api.asking import QUESTION, Ask
from tests.fixtures import asking, one_by_one, running

ENDINGS = ("", ".xlsx", ".ods", ".html")
HOST = "http://localhost"
NOW = datetime.now(UTC)


class Locked(NamedTuple):
    """A service that asks for keys, and who may write there."""

    app: FastAPI
    ask: Ask
    writer: dict[str, str]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    with running(f"sqlite:///{tmp_path_factory.mktemp('shares') / 'traincost.db'}") as app, asking(app) as together:
        made = make_key(app.state.engine, KeyRequest(name="x", scopes=["write"]))
        app.state.keys.refresh()
        yield Locked(app, one_by_one(together), {"Authorization": f"Bearer {made.presented}"})


def saved(ask: Ask, **request: Any) -> str:
    """The path of a new scenario."""
    answer = ask("POST", "/v1/scenarios", json={"name": "shared", "question": QUESTION}, **request)
    assert answer.status_code == 201, answer.text
    place: str = answer.headers["location"]
    return place


def shared(ask: Ask, place: str, body: dict[str, Any], **request: Any) -> dict[str, str]:
    """Links to a scenario, without the host."""
    answer = ask("POST", f"{place}/share", json=body, **request)
    assert answer.status_code == 200, answer.text
    return {name: link.removeprefix(HOST) for name, link in answer.json()["links"].items()}


def token_of(links: dict[str, str]) -> str:
    return links["scenario"].partition("?share=")[2]


def test_a_link_opens_one_scenario_and_nothing_else(locked: Locked) -> None:
    place, other = (saved(locked.ask, headers=locked.writer) for _ in range(2))
    links = shared(locked.ask, place, {}, headers=locked.writer)
    assert list(links) == ["scenario", "xlsx", "ods", "html"]
    for link, ending in zip(links.values(), ENDINGS, strict=True):
        opened = locked.ask("GET", link)
        whole = locked.ask("GET", f"{place}{ending}", headers=locked.writer)
        assert (opened.status_code, opened.content, opened.headers["etag"]) == (
            200,
            whole.content,
            whole.headers["etag"],
        )
        assert opened.headers["cache-control"] == "private"
        assert token_of(links) not in str(opened.headers) + opened.text
        assert locked.ask("HEAD", link).status_code == 200
    query = f"?share={token_of(links)}"
    assert locked.ask("GET", f"{place}{query}&revision=1").status_code == 200
    assert locked.ask("GET", f"{place}{query}&revision=2").status_code == 404
    for path in (other, f"{other}.xlsx", "/v1/scenarios", "/v1/scenarios.xlsx", "/v1/gpus", "/v1/cell/fits"):
        assert locked.ask("GET", f"{path}{query}").status_code == 401, path
    for method in ("PUT", "PATCH", "DELETE"):
        assert locked.ask(method, f"{place}{query}", headers={"If-Match": "*"}).status_code == 401
    assert locked.ask("POST", f"{place}/share{query}", json={}).status_code == 401


def test_a_link_ends_with_its_day_and_with_its_scenario(locked: Locked) -> None:
    place = saved(locked.ask, headers=locked.writer)
    links = shared(locked.ask, place, {"days": 1}, headers=locked.writer)
    share_id, end = token_of(links).split(".")[1], int(NOW.timestamp()) - 60
    ended = link_token(locked.app.state.keys.signing_secret, share_id, place.rpartition("/")[2], end)
    answer = locked.ask("GET", f"{place}?share={ended}")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert "ended at 20" in answer.json()["detail"]
    assert "www-authenticate" in answer.headers
    assert locked.ask("DELETE", place, headers={**locked.writer, "If-Match": "*"}).status_code == 204
    answer = locked.ask("GET", links["scenario"])
    assert (answer.status_code, "no longer exists" in answer.text) == (401, True)


def test_no_part_of_a_link_can_be_changed(locked: Locked) -> None:
    place = saved(locked.ask, headers=locked.writer)
    token = token_of(shared(locked.ask, place, {"days": 1}, headers=locked.writer))
    scheme, share_id, end, signature = token.split(".")
    head = f"{scheme}.{share_id}"
    swapped = "B" if signature[0] == "A" else "A"
    wrong = [
        "", ".", "..", scheme, f"{head}.{end}.", token[:-1], f"{token}=", f"{token}.", f"{token}&share={token}",
        f"1.{end}.{signature}", f"3.{share_id}.{end}.{signature}", f"{head}.{int(end) + 1}.{signature}",
        f"{head}.0{end}.{signature}", f"{head}.{end}.{swapped}{signature[1:]}", f"{head}.{'9' * 5000}.{signature}",
        f"{head}.-1.{signature}", f"{head}.%D9%A1.{signature}", "%ED%A0%80", f"{head}x.{end}.{signature}",
        f"{scheme}.{share_id[:-1]}.{end}.{signature}", f"{scheme}.%ED%A0%80.{end}.{signature}",
    ]  # fmt: skip
    for share in wrong:
        answer = locked.ask("GET", f"{place}?share={share}")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), share
        assert "did not sign the link" in answer.json()["detail"]
        assert signature[1:] not in answer.text


def test_links_work_on_a_service_without_keys_too(kept: Ask) -> None:
    place = saved(kept)
    links = shared(kept, place, {"expires_at": (NOW + timedelta(days=3)).isoformat()})
    for link in links.values():
        assert kept("GET", link).status_code == 200
        assert kept("GET", f"{link}x").status_code == 401


def test_another_replica_knows_a_link_at_once(locked: Locked) -> None:
    place = saved(locked.ask, headers=locked.writer)
    link = shared(locked.ask, place, {}, headers=locked.writer)["scenario"]
    locked.app.state.keys.signing_secret = None
    assert locked.ask("GET", link).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"days": 0}, "/days"),
        ({"days": 367}, "/days"),
        ({"days": 1.5}, "/days"),
        ({"days": True}, "/days"),
        ({"expires_at": "tomorrow"}, "/expires_at"),
        ({"expires_at": 1_900_000_000}, "/expires_at"),
        ({"expires_at": (NOW + timedelta(days=3)).replace(tzinfo=None).isoformat()}, "/expires_at"),
        ({"expires_at": (NOW - timedelta(days=3)).isoformat()}, "/expires_at"),
        ({"expires_at": (NOW + timedelta(days=400)).isoformat()}, "/expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-23:59"}, "/expires_at"),
        ({"days": 3, "expires_at": (NOW + timedelta(days=3)).isoformat()}, "/expires_at"),
        ({"until": 3}, "/until"),
    ],
)
def test_an_end_that_is_none_is_refused(ask: Ask, body: dict[str, Any], field: str) -> None:
    answer = ask("POST", f"/v1/scenarios/scn_{'a' * 22}/share", json=body)
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [field]


def test_the_end_is_told_and_there_is_none_without_a_scenario(ask: Ask) -> None:
    assert ask("POST", f"/v1/scenarios/scn_{'a' * 22}/share", json={}).status_code == 404
    place = saved(ask)
    told = ask("POST", f"{place}/share", json={"expires_at": (NOW + timedelta(hours=5)).isoformat()}).json()
    assert told["expires_at"] == (NOW + timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    after_a_month = datetime.fromisoformat(ask("POST", f"{place}/share", json={}).json()["expires_at"])
    assert timedelta(days=29.9) < after_a_month - NOW < timedelta(days=30.1)


def test_the_database_is_seldom_looked_into_for_links_that_nobody_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    with running(f"sqlite:///{tmp_path}/traincost.db") as app, asking(app) as together:
        ring = app.state.keys
        refresh = ring.refresh

        def counted() -> None:
            begun.append(monotonic())
            refresh()

        monkeypatch.setattr(ring, "refresh", counted)
        guess = {"method": "GET", "url": f"/v1/scenarios/scn_{'a' * 22}?share=x"}
        start = monotonic()
        for _ in range(3):
            assert {answer.status_code for answer in together([guess] * 20)} == {401}
        assert 3 <= len(begun) <= 2 + (monotonic() - start) / REFRESH_SECONDS, "one serves all who ask meanwhile"
        looks = len(begun)
        app.state.keys.make_signing_secret()
        assert {answer.status_code for answer in together([guess] * 20)} == {401}
        assert len(begun) == looks, "there is nothing left to look for"


def listed(locked: Locked, place: str, **request: Any) -> list[dict[str, Any]]:
    answer = locked.ask("GET", f"{place}/shares", **{"headers": locked.writer, **request})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def key_of(locked: Locked, *scopes: str, owner: str = "team") -> NewKey:
    made = make_key(locked.app.state.engine, KeyRequest(name="y", scopes=scopes, owner=owner))
    locked.app.state.keys.refresh()
    return made


def bearer(key: NewKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.presented}"}


def test_links_are_listed_and_revoked_one_by_one(locked: Locked) -> None:
    place = saved(locked.ask, headers=locked.writer)
    told = [locked.ask("POST", f"{place}/share", json={"days": day}, headers=locked.writer).json() for day in (1, 2)]
    first, second = (one["links"]["scenario"].removeprefix(HOST) for one in told)
    items = listed(locked, place)
    assert [(one["id"], one["status"], one["expires_at"], one["made_by"]) for one in items] == [
        (one["id"], "active", one["expires_at"], locked.writer["Authorization"].split()[1].split(".")[0])
        for one in told
    ]
    assert [one["last_used_at"] for one in items] == [None, None]
    assert token_of({"scenario": first}).rpartition(".")[2] not in str(items)
    assert locked.ask("GET", second).status_code == 200
    locked.app.state.keys.write_uses()
    assert [one["last_used_at"] is None for one in listed(locked, place)] == [True, False]
    gone = f"{place}/shares/{told[0]['id']}"
    for _ in range(2):
        assert locked.ask("DELETE", gone, headers=locked.writer).status_code == 204
    for ending in ENDINGS:
        refused = locked.ask("GET", f"{place}{ending}?{first.partition('?')[2]}")
        assert refused.status_code == 401
        assert "revoked" in refused.text
    assert locked.ask("GET", second).status_code == 200
    assert [one["status"] for one in listed(locked, place)] == ["revoked", "active"]


def test_links_are_listed_and_revoked_by_those_who_may_write_the_scenario(locked: Locked) -> None:
    place, other = (saved(locked.ask, headers=locked.writer) for _ in range(2))
    links = shared(locked.ask, place, {}, headers=locked.writer)
    (one,) = listed(locked, place)
    asked = (("GET", f"{place}/shares"), ("DELETE", f"{place}/shares/{one['id']}"))
    for sent, status in (
        ({}, 401),
        (bearer(key_of(locked, "read")), 403),
        (bearer(key_of(locked, "write", owner="others")), 404),
    ):
        for method, path in asked:
            assert locked.ask(method, path, headers=sent).status_code == status, (method, sent)
    elsewhere = locked.ask("DELETE", f"{other}/shares/{one['id']}", headers=locked.writer)
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (404, "not_found")
    assert locked.ask("DELETE", f"{place}/shares/%00", headers=locked.writer).status_code == 404
    assert locked.ask("GET", links["scenario"]).status_code == 200
    admin = bearer(key_of(locked, "admin"))
    assert [locked.ask(method, path, headers=admin).status_code for method, path in asked] == [200, 204]
    assert locked.ask("GET", links["scenario"]).status_code == 401
    log = locked.ask("GET", f"/v1/audit?object={place.rpartition('/')[2]}/{one['id']}", headers=admin).json()["items"]
    assert {(entry["operation"], entry["outcome"]) for entry in log} == {
        ("shareScenario", "done"), ("revokeShare", "forbidden"), ("revokeShare", "not_found"), ("revokeShare", "done"),
    }  # fmt: skip


def test_a_revoked_key_takes_its_links_with_it(locked: Locked) -> None:
    key = key_of(locked, "write")
    place = saved(locked.ask, headers=locked.writer)
    of_key = shared(locked.ask, place, {}, headers=bearer(key))["scenario"]
    of_another = shared(locked.ask, place, {}, headers=locked.writer)["scenario"]
    assert [locked.ask("GET", link).status_code for link in (of_key, of_another)] == [200, 200]
    revoke(locked.app.state.engine, key.key.id)
    assert [locked.ask("GET", link).status_code for link in (of_key, of_another)] == [401, 200]
    assert [one["status"] for one in listed(locked, place)] == ["revoked", "active"]


def test_links_of_earlier_versions_hold_until_all_of_them_are_revoked(locked: Locked) -> None:
    place, engine = saved(locked.ask, headers=locked.writer), locked.app.state.engine
    with writing(engine) as connection:
        secret = {"name": "share links", "secret": bytes(range(32)), "made_at": NOW}
        connection.execute(insert(SERVER_SECRETS), secret)
    locked.app.state.keys.refresh()
    scenario_id, end = place.rpartition("/")[2], int(datetime.now(UTC).timestamp()) + 1000
    old = f"{place}?share={unlisted_link_token(bytes(range(32)), scenario_id, end)}"
    new = shared(locked.ask, place, {}, headers=locked.writer)["scenario"]
    assert [locked.ask("GET", link).status_code for link in (old, new)] == [200, 200]
    assert len(listed(locked, place)) == 1
    assert revoke_unlisted_links(engine)
    assert not revoke_unlisted_links(engine)
    locked.app.state.keys.refresh()
    assert [locked.ask("GET", link).status_code for link in (old, new)] == [401, 200]
