"""A key in a log or in an error is detected: each way of leaking one is tried and undone."""

import logging
from pathlib import Path
from secrets import token_urlsafe

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import Response

from service.api.access.key_rules import KeyRequest, make_key
from service.settings import read_settings
from tests.databases import prepared
from tests.fixtures import asking, one_by_one
from tests.live import looked_through
from tests.secrecy import issued, leaks, look_into
from tests.store.small import SMALL


@pytest.fixture
def presented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A key that was just made, as its caller sends it."""
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{tmp_path / 'traincost.db'}")
    engine = prepared(read_settings().database_url, SMALL)
    made = make_key(engine, KeyRequest(name="x", scopes=["read"])).presented
    engine.dispose()
    return made


def test_a_secret_in_a_log_is_noticed_and_a_masked_key_is_none(presented: str) -> None:
    key_id, _, secret = presented.partition(".")
    log = logging.getLogger("tests.secrecy")
    log.warning("key %s", key_id)
    log.warning("key %s", presented)
    assert leaks() == [], "the service's own formatters mask a whole key"
    log.warning("secret %s", secret)
    assert leaks() == ["the log of tests.secrecy"] * 2
    log.error("failed", exc_info=ValueError(secret))
    assert leaks() == ["the log of tests.secrecy"] * 2
    log.propagate = False
    log.warning("kept to itself: %s", secret)
    log.propagate = True
    assert leaks() == ["the log of tests.secrecy"] * 2


def test_a_secret_in_an_answer_is_noticed(presented: str) -> None:
    app = FastAPI()

    @app.get("/{kind}")
    def told(kind: str) -> Response:
        headers = {"X-Told": presented} if kind == "header" else {}
        return Response(presented if kind == "body" else "", status_code=404, headers=headers)

    with asking(app) as together:
        ask = one_by_one(together)
        for kind, found in (("body", 1), ("header", 1), ("neither", 0)):
            assert isinstance(ask("GET", f"/{kind}"), httpx.Response)
            assert len(leaks()) == found


def test_a_key_in_the_log_of_a_service_is_noticed_whoever_made_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"GET /v1/gpus tck_{'a' * 8}.{'b' * 43}\n")
    looked_through(log)
    assert leaks() == [f"the log {log}"]
    log.write_text("GET /v1/gpus ***\n")
    looked_through(log)
    assert leaks() == []


def test_what_somebody_else_issued_is_noticed_too() -> None:
    secret = token_urlsafe()
    issued(secret)
    look_into(f"it is {secret}", "here")
    assert leaks() == ["here"]
