"""Without keys, a web page of another site can neither change nor read anything through a visitor's browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.api.access.key_rules import KeyRequest, make_key
from service.api.cross_site import EXPOSED_HEADERS, SENT_HEADERS
from service.settings import Settings
from tests.api.asking import QUESTION, Ask
from tests.fixtures import application, asking, one_by_one
from tests.live import serving

EVIL = "https://evil.example"
ALLOWED = "https://tools.example.org"
SIMPLE = {"Content-Type": "text/plain"}
"""What a page may send to any site without asking first."""

LOG = "# nThreads 1\n"
FILE = "/v1/worker/jobs/a/files/b"
IMPORT = "/v1/measurements/imports/nccl-tests"


@contextmanager
def served(url: str, **settings: Any) -> Iterator[tuple[FastAPI, Ask]]:
    """An application without keys."""
    app = application(Settings(database_url=url, **settings))
    with asking(app) as together:
        yield app, one_by_one(together)
    app.state.engine.dispose()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('pages') / 'traincost.db'}"


@pytest.fixture(scope="module")
def near(url: str) -> Iterator[Ask]:
    """A service that listens for its own machine alone."""
    with served(url, cors_origins=(ALLOWED,), host_names=("tools.example.org",)) as (_, ask):
        yield ask


PAGES: dict[str, tuple[dict[str, str], bool]] = {
    "of no browser": ({}, True),
    "of the service": ({"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, True),
    "of the service, in a browser that says less": ({"Origin": "http://localhost"}, True),
    "of the service, behind a proxy with another name": (
        {"Origin": "https://x.org", "Sec-Fetch-Site": "same-origin"},
        True,
    ),
    "that the user asked for": ({"Sec-Fetch-Site": "none"}, True),
    "of an allowed origin": ({"Origin": ALLOWED, "Sec-Fetch-Site": "cross-site"}, True),
    "of another site": ({"Origin": EVIL, "Sec-Fetch-Site": "cross-site"}, False),
    "of another site, in a browser that says less": ({"Origin": EVIL}, False),
    "of another port of this machine": ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, False),
    "of another port, in a browser that says less": ({"Origin": "http://localhost:3000"}, False),
    "of no origin": ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, False),
    "that hides its origin": ({"Sec-Fetch-Site": "cross-site"}, False),
    "of a name that begins alike": ({"Origin": "http://localhost.evil.example"}, False),
}
"""Headers that a browser adds to what a page sends, and whether that page may change something."""


@pytest.mark.parametrize("page", PAGES)
def test_only_pages_of_the_service_and_of_allowed_origins_change_something(near: Ask, page: str) -> None:
    headers, may_change = PAGES[page]
    saved = near("POST", "/v1/scenarios", json={"name": page, "question": QUESTION}, headers=headers)
    for method, path in (("POST", IMPORT), ("PUT", FILE), ("POST", "/v1/launch-checks/a/cancel")):
        answer = near(method, path, content=LOG, headers={**SIMPLE, **headers})
        assert (answer.status_code == 403) == (not may_change), (path, answer.text)
    assert saved.status_code == (201 if may_change else 403)
    if not may_change:
        assert saved.json()["code"] == "foreign_page"
    assert near("GET", "/v1/scenarios", headers=headers).status_code == 200, "the browser keeps it from the page"


def test_what_a_foreign_page_sends_writes_nothing(near: Ask) -> None:
    before = near("GET", "/v1/scenarios").json()
    for method, path in (
        ("PUT", "/v1/scenarios/a"),
        ("PATCH", "/v1/gpus/a"),
        ("DELETE", "/v1/gpus/a"),
        ("POST", "/v1/check"),
    ):
        assert near(method, path, json={}, headers={"Origin": EVIL}).json()["code"] == "foreign_page", path
    assert near("GET", "/v1/scenarios").json() == before


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "0.0.0.0:8000", "[::2]"]
)
def test_another_name_for_this_machine_reads_nothing(near: Ask, host: str) -> None:
    for method, path in (("GET", "/v1/scenarios"), ("POST", "/v1/check"), ("GET", "/"), ("GET", "/openapi.json")):
        answer = near(method, path, headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (421, "unknown_host"), path
    assert near("GET", "/v1/cell/fits?on_error=text", headers={"Host": host}).text.startswith("#ERR unknown_host")
    assert near("GET", "/readyz", headers={"Host": host}).status_code == 200, "probes learn nothing"
    webhook = near("POST", "/v1/adapters/kubernetes/admission/none", json={}, headers={"Host": host})
    assert webhook.status_code == 404, "a cluster calls the webhook by a name of its own"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:80", "[::1]", "[::1]:8000", "tools.example.org:443"]
)
def test_the_names_of_this_machine_and_those_that_are_named_do(near: Ask, host: str) -> None:
    assert near("GET", "/v1/scenarios", headers={"Host": host}).status_code == 200


def test_any_name_may_be_right_where_other_machines_come(url: str) -> None:
    headers = {"Host": "evil.example"}
    with served(url, host="0.0.0.0", insecure=True) as (_, ask):  # noqa: S104 - that is what is tried
        assert ask("GET", "/v1/scenarios", headers=headers).status_code == 200
        assert ask("POST", IMPORT, content=LOG, headers={**SIMPLE, "Origin": EVIL}).status_code == 403
    with served(url, host="127.0.0.1", insecure=True) as (_, ask):
        assert ask("GET", "/v1/scenarios", headers=headers).status_code == 421
    with served(url, host="127.0.0.2") as (_, ask):
        assert ask("GET", "/v1/scenarios", headers={"Host": "127.0.0.2:8000"}).status_code == 200


def test_any_origin_may_change_something_where_a_setting_says_so(url: str) -> None:
    with served(url, cors_origins=("*",)) as (_, ask):
        headers = {**SIMPLE, "Origin": "null", "Sec-Fetch-Site": "cross-site"}
        assert ask("POST", IMPORT, content=LOG, headers=headers).status_code != 403


def test_where_keys_are_asked_for_they_tell(tmp_path: Any) -> None:
    with served(f"sqlite:///{tmp_path}/traincost.db") as (app, ask):
        made = make_key(app.state.engine, KeyRequest(name="x", scopes=["write"]))
        app.state.keys.refresh()
        headers = {"Host": "evil.example", "Origin": EVIL, "Authorization": f"Bearer {made.presented}"}
        saved = ask("POST", "/v1/scenarios", json={"name": "x", "question": QUESTION}, headers=headers)
        assert saved.status_code == 201, saved.text
        del headers["Authorization"]
        assert ask("GET", "/v1/scenarios", headers=headers).status_code == 401


def test_the_page_that_the_service_shows_may_change_something(tmp_path: Any) -> None:
    with serving(tmp_path) as address, httpx.Client(base_url=f"http://{address}", timeout=30) as client:
        for headers, status in (({"Origin": f"http://{address}"}, 201), ({"Origin": EVIL}, 403)):
            body = {"name": "x", "question": QUESTION}
            assert client.post("/v1/scenarios", json=body, headers=headers).status_code == status


"""The origin that the tests' settings name."""


def test_a_page_of_an_allowed_origin_may_read_answers_and_their_headers(ask: Ask) -> None:
    answer = ask("GET", "/healthz", headers={"Origin": ALLOWED})
    assert answer.headers["access-control-allow-origin"] == ALLOWED
    exposed = set(answer.headers["access-control-expose-headers"].split(", "))
    assert exposed == set(EXPOSED_HEADERS) > {"ETag", "RateLimit", "Retry-After", "X-Request-Id", "X-Verdict"}
    assert "Origin" in answer.headers["vary"]


def test_a_problem_document_can_be_read_by_an_allowed_page_too(ask: Ask) -> None:
    for path in ("/no-such-path", "/v1/memory"):
        answer = ask("GET", path, headers={"Origin": ALLOWED})
        assert answer.headers["access-control-allow-origin"] == ALLOWED


def test_another_origin_is_not_let_in(ask: Ask) -> None:
    assert (
        "access-control-allow-origin" not in ask("GET", "/healthz", headers={"Origin": "https://other.example"}).headers
    )


def test_a_preflight_names_methods_and_lasts_ten_minutes(ask: Ask) -> None:
    headers = {
        "Origin": ALLOWED,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    answer = ask("OPTIONS", "/v1/estimates", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE"
    assert answer.headers["access-control-max-age"] == "600"


def test_a_page_of_an_allowed_origin_may_change_rows(ask: Ask) -> None:
    asked = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "content-type, if-match"}
    answer = ask("OPTIONS", "/v1/gpus/own", headers={"Origin": ALLOWED, **asked})
    assert answer.status_code == 200
    assert "If-Match" in answer.headers["access-control-allow-headers"].split(", ")


def preflight(ask: Ask, header: str) -> int:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": header.lower()}
    return ask("OPTIONS", "/v1/sweeps", headers={"Origin": ALLOWED, **asked}).status_code


def test_every_header_of_the_contract_may_be_sent(ask: Ask, document: dict[str, Any]) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    found = [parameter for operation in operations for parameter in operation.get("parameters", ())]
    known = document["components"].get("parameters", {})
    found = [known[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in found]
    named = {one["name"] for one in found if one["in"] == "header"}
    assert named >= {"If-Match", "Idempotency-Key", "Last-Event-ID"}
    assert {name: preflight(ask, name) for name in named} == dict.fromkeys(named, 200)


@pytest.mark.parametrize("header", [*SENT_HEADERS, "authorization,content-type,idempotency-key,traceparent"])
def test_what_the_service_reads_may_be_sent(ask: Ask, header: str) -> None:
    assert preflight(ask, header) == 200


@pytest.mark.parametrize("header", ["x-forwarded-for", "x-any-other"])
def test_what_it_does_not_read_may_not(ask: Ask, header: str) -> None:
    assert preflight(ask, header) == 400


def test_every_header_of_an_answer_in_the_contract_may_be_read(document: dict[str, Any]) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    answers = [answer for operation in operations for answer in operation["responses"].values()]
    answers += document["components"]["responses"].values()
    named = {name for answer in answers for name in answer.get("headers", {})}
    assert named >= {"ETag", "Idempotent-Replayed", "WWW-Authenticate", "X-Unit"}
    assert named <= set(EXPOSED_HEADERS)


def test_a_page_reads_what_a_program_would(ask: Ask) -> None:
    headers = {"Origin": ALLOWED}
    sent = {"GET": ("/v1/gpus.xlsx", "content-disposition"), "PUT": ("/v1/estimates", "allow")}
    for method, (path, header) in sent.items():
        answer = ask(method, path, headers=headers)
        assert header in answer.headers
        assert header in answer.headers["access-control-expose-headers"].lower().split(", ")
