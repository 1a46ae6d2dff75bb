"""What keys open and close, and that nobody learns a secret; test_authorization.py tries every operation."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, get_args

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from service.api.access.key_rules import KeyRequest, make_key
from service.api.openapi import SCOPE
from service.app import ROUTERS, create_app
from service.catalogue import shipped_catalogue
from service.openapi.document import problem_example
from service.settings import Settings
from service.store.keys import ApiKey, Scope, create_key, revoke_key
from tests.api.asking import ADMISSION_TOKEN, QUESTION, Ask
from tests.fixtures import asking, one_by_one, running

QUERY = {"no_such_parameter": "1"}
"""Whoever is let in is refused for this, before anything costs time."""

WITHOUT_A_KEY = {"/healthz", "/readyz", "/v1/adapters/kubernetes/admission/{token}"}
CELL = "/v1/cell/gpu_hours"
FLAT = "model=llama-3.1-8b&gpu=h100&gpus=8&seq=8192&gbs=512&tp=2&training_tokens=2e11"

Keys = Mapping[str, str]
"""What callers of each kind send."""


@pytest.fixture(scope="module")
def locked_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """An application that asks for keys."""
    with running(f"sqlite:///{tmp_path_factory.mktemp('locked') / 'traincost.db'}") as started:
        yield started


@pytest.fixture(scope="module")
def keys(locked_app: FastAPI) -> Keys:
    engine = locked_app.state.engine
    made = {scope: make_key(engine, KeyRequest(name=scope, scopes=[scope])) for scope in get_args(Scope)}
    old = replace(made["admin"].key, id="tck_expired", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    create_key(engine, old)
    create_key(engine, replace(old, id="tck_revoked", expires_at=None))
    revoke_key(engine, "tck_revoked", datetime.now(UTC))
    locked_app.state.keys.refresh()
    secret = made["admin"].presented.partition(".")[2]
    return {
        **{scope: new.presented for scope, new in made.items()},
        "expired": f"tck_expired.{secret}",
        "revoked": f"tck_revoked.{secret}",
        "unknown": f"tck_nobody.{secret}",
        "wrong": made["admin"].presented[:-1],
    }


@pytest.fixture(scope="module")
def locked(locked_app: FastAPI, keys: Keys) -> Iterator[Ask]:
    assert keys
    with asking(locked_app) as together:
        yield one_by_one(together)


def bearing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


TOLD_IN_TEXT = {"unauthorized": 401, "forbidden": 403}
"""What /v1/cell/why tells, which is always text."""


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Method, path, a path of that form, and what the contract says, of every operation."""
    for path, methods in document["paths"].items():
        place = path.replace("{token}", ADMISSION_TOKEN).replace("{", "").replace("}", "")
        for method, operation in methods.items():
            yield method.upper(), path, place, operation


def scope_of(operation: dict[str, Any]) -> Scope | None:
    found: Scope | None = operation.get(SCOPE)
    assert (found is None) == (operation["security"] == [])
    return found


def test_only_probes_and_the_webhook_ask_for_no_key(document: dict[str, Any]) -> None:
    assert {path for _, path, _, operation in operations(document) if not operation["security"]} == WITHOUT_A_KEY


TURNS = (
    "/share",
    "/measurements",
    "/measurements/imports/{format}",
    "/quarantine",
    "/release",
    "/cancel",
    "/resume",
    "/reconciliations",
)
"""Ends of addresses at which something is changed and told about with 200."""


def test_nothing_is_changed_or_read_by_less_than_its_scope(document: dict[str, Any]) -> None:
    for method, path, _, operation in operations(document):
        scope = scope_of(operation)
        is_change = method != "GET" and bool({"201", "202", "204", "409", "412"} & operation["responses"].keys())
        is_change |= method == "POST" and path.endswith(TURNS)
        is_change |= path.endswith("/shares")  # lists links, which only those who may share see
        assert (scope == "write") == (is_change and scope != "worker"), (method, path)
        assert (scope == "worker") == path.startswith("/v1/worker/"), (method, path)
        for_sheets = path.startswith("/v1/cell/") or path in {
            f"/v1/scenarios/{{scenario_id}}.{e}" for e in ("xlsx", "ods", "html")
        }
        assert (scope == "sheet") == for_sheets, (method, path)


def test_what_is_not_in_the_contract_is_a_page() -> None:
    hidden = [r for router in ROUTERS for r in router.routes if isinstance(r, APIRoute) and not r.include_in_schema]
    assert hidden
    assert [route.path for route in hidden if route.path.startswith("/v1")] == []


def test_a_route_that_would_not_authenticate_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    router = APIRouter()
    router.add_api_route("/v1/open", lambda: None)
    monkeypatch.setattr("service.app.ROUTERS", (router,))
    with pytest.raises(TypeError, match=r"/v1/open: .*StrictRoute"):
        create_app(Settings(), shipped_catalogue())


@pytest.mark.parametrize("path", ["/", "/guide", "/guide/budget.xlsx", "/docs", "/openapi.json", "/web/style.css"])
def test_pages_ask_for_no_key(locked: Ask, path: str) -> None:
    assert locked("GET", path).status_code == 200


def test_a_refusal_says_why_and_nothing_that_was_sent(locked: Ask, keys: Keys) -> None:
    said = {
        None: "asks for a key",
        "expired": "has expired",
        "revoked": "was revoked",
        "unknown": "this key is not known here",
        "wrong": "this key is not known here",
    }
    for caller, why in said.items():
        answer = locked("GET", "/v1/gpus", headers={} if caller is None else bearing(keys[caller]))
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith('Bearer realm="traincost"')
        assert ("invalid_token" in answer.headers["www-authenticate"]) is (caller is not None)
        assert why in answer.json()["detail"]
        if caller is None:
            assert without_id(answer.json()) == without_id(problem_example("unauthorized"))
        if caller is not None:
            assert not any(part in answer.text + str(answer.headers) for part in keys[caller].split("."))
    answer = locked("POST", "/v1/gpus", headers=bearing(keys["read"]))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert 'scope="write"' in answer.headers["www-authenticate"]
    assert without_id(answer.json()) == without_id(problem_example("forbidden"))


def without_id(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "request_id"}


@pytest.mark.parametrize("header", ["Basic dGVzdDp0ZXN0", "Bearer", "Bearer ", "tck_a.b", "Bearer \xff.\xfe"])
def test_a_header_that_holds_no_key(locked: Ask, header: str) -> None:
    assert locked("GET", "/v1/gpus", headers={"Authorization": header.encode("latin-1")}).status_code == 401


def test_a_body_is_not_judged_before_its_sender(locked: Ask) -> None:
    assert locked("POST", "/v1/estimates", content=b"{", headers={"Content-Type": "text/plain"}).status_code == 401


def test_a_sheet_key_in_the_query_changes_neither_number_nor_etag(locked: Ask, ask: Ask, keys: Keys) -> None:
    secret = keys["sheet"]
    plain, given = ask("GET", f"{CELL}?{FLAT}"), locked("GET", f"{CELL}?key={secret}&{FLAT}")
    assert (given.status_code, given.text) == (200, plain.text)
    assert given.headers["etag"] == plain.headers["etag"]
    assert "private" in given.headers["cache-control"]
    assert secret not in str(given.headers)
    assert given.headers["referrer-policy"] == "no-referrer"
    spelled = locked("GET", f"{CELL}?{FLAT}&%6bey={secret.replace('_', '%5F')}")
    assert (spelled.status_code, spelled.headers["etag"]) == (200, given.headers["etag"])
    head = locked("HEAD", f"{CELL}?{FLAT}&key={secret}")
    assert (head.status_code, head.headers["etag"]) == (200, given.headers["etag"])
    assert locked("HEAD", f"{CELL}?{FLAT}").status_code == 401
    assert locked("OPTIONS", f"{CELL}?{FLAT}").status_code == 204
    known = locked("GET", f"{CELL}?key={secret}&{FLAT}", headers={"If-None-Match": given.headers["etag"]})
    assert known.status_code == 304


def test_a_key_in_the_query_is_taken_for_sheets_alone(locked: Ask, keys: Keys) -> None:
    for path in ("/v1/gpus", "/v1/estimates", "/v1/scenarios", "/v1/scenarios.xlsx", "/v1/scenarios/scn_x"):
        answer = locked("GET", path, params={"key": keys["sheet"]})
        assert answer.status_code == 401, path
        again = locked("GET", path, params={"key": keys["sheet"]}, headers=bearing(keys["read"]))
        assert again.status_code in {404, 422}, path
        assert keys["sheet"].partition(".")[2] not in answer.text + again.text
    assert locked("GET", f"{CELL}?{FLAT}&key={keys['sheet']}&key={keys['sheet']}").status_code == 401
    for scope in ("read", "write", "admin"):
        answer = locked("GET", f"{CELL}?{FLAT}&key={keys[scope]}")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert "one scope is sheet" in answer.json()["detail"]


def test_a_cell_shows_why_it_has_no_number(locked: Ask, keys: Keys) -> None:
    for key, why in (
        ("wrong", "#ERR unauthorized: this key is not known"),
        ("expired", "#ERR unauthorized: the key has expired"),
    ):
        answer = locked("GET", f"{CELL}?{FLAT}&on_error=text&key={keys[key]}")
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert answer.text.startswith(why)
    assert locked("GET", f"{CELL}?{FLAT}&on_error=blank").text == ""
    told = {
        "why": ("text/plain", "unauthorized: this service asks"),
        "table.csv": ("text/csv", "#ERR unauthorized: this service asks"),
        "estimate.xml": ("application/xml", "<estimate><error>#ERR unauthorized: this service asks"),
    }
    for path, (media_type, text) in told.items():
        answer = locked("GET", f"/v1/cell/{path}?{FLAT}&on_error=text")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(media_type)
        assert answer.text.strip('"\ufeff').startswith(text)


def test_a_service_without_keys_takes_any_sheet(ask: Ask) -> None:
    assert ask("GET", f"{CELL}?{FLAT}&key=anything").text == ask("GET", f"{CELL}?{FLAT}").text


def test_what_a_key_was_answered_stays_out_of_shared_caches(locked: Ask, ask: Ask, keys: Keys) -> None:
    assert locked("GET", "/v1/gpus", headers=bearing(keys["read"])).headers["cache-control"] == "private"
    assert "cache-control" not in ask("GET", "/v1/gpus").headers


def test_a_budget_is_read_with_a_sheet_key(locked: Ask, keys: Keys) -> None:
    body = {"name": "ours", "question": QUESTION}
    assert locked("POST", "/v1/scenarios", json=body, headers=bearing(keys["read"])).status_code == 403
    made = locked("POST", "/v1/scenarios", json=body, headers=bearing(keys["write"])).json()
    for ending in ("xlsx", "ods", "html"):
        answer = locked("GET", f"{made['links']['self']}.{ending}?key={keys['sheet']}")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "private"
    assert locked("GET", made["links"]["self"], headers=bearing(keys["sheet"])).status_code == 403


def test_a_use_is_noted_and_a_revocation_heard_of(locked_app: FastAPI, locked: Ask) -> None:
    engine, ring = locked_app.state.engine, locked_app.state.keys
    made = ApiKey(
        id="tck_short",
        name="x",
        owner="team",
        scopes=("read",),
        digest=sha256(b"s").digest(),
        created_at=datetime.now(UTC),
    )
    create_key(engine, made)
    assert locked("GET", "/v1/gpus", headers=bearing("tck_short.s")).status_code == 401
    ring.refresh()
    assert locked("GET", "/v1/gpus", headers=bearing("tck_short.s")).status_code == 200
    ring.write_uses()
    ring.refresh()
    revoke_key(engine, made.id, datetime.now(UTC))
    ring.refresh()
    assert locked("GET", "/v1/gpus", headers=bearing("tck_short.s")).status_code == 401
    found = ring.find("tck_short.s")
    assert found.last_used_at is not None
