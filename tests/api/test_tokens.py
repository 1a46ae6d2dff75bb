"""OpenID Connect tokens: accepted for the subject and scopes that they name, refused otherwise."""

import base64
import json
from collections.abc import Iterator
from hashlib import sha256
from hmac import digest
from pathlib import Path
from time import time
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi import FastAPI

from service.api.access import tokens
from service.api.access.key_rules import KeyRequest, make_key
from service.api.access.tokens import keys_of
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.client.sending import events_of
from service.errors import StartupError
from service.settings import Settings
from tests.api.asking import QUESTION, Ask
from tests.api.issuer import AUDIENCE, ISSUER, Issuer, issuing
from tests.fixtures import application, asking, one_by_one
from tests.waiting import wait_until

ROLES = ("ml=write", "platform=admin", "looks=read")


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as found:
        yield found


def settings_for(url: str, jwks: str, **more: Any) -> Settings:
    return Settings(
        database_url=url,
        oidc_issuer=ISSUER,
        oidc_audience=AUDIENCE,
        oidc_jwks=jwks,
        **{"oidc_roles": ",".join(ROLES), **more},
    )


@pytest.fixture(scope="module")
def app(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    url = f"sqlite:///{tmp_path_factory.mktemp('tokens') / 'traincost.db'}"
    started = application(settings_for(url, issuer.address))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "LONGEST_SECONDS", 120.0)  # the issuer, a thread of this process, may be slow
        yield started
    started.state.engine.dispose()


@pytest.fixture(scope="module")
def ask(app: FastAPI) -> Iterator[Ask]:
    with asking(app) as together:
        yield one_by_one(together)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for an unknown key does so each time."""
    monkeypatch.setattr(tokens, "APART_SECONDS", 0.0)


def read(ask: Ask, token: str, path: str = "/v1/gpus?limit=1") -> httpx.Response:
    return ask("GET", path, headers={"Authorization": f"Bearer {token}"})


def test_a_service_that_takes_tokens_is_locked(ask: Ask) -> None:
    assert ask("GET", "/v1/gpus").status_code == 401
    assert ask("GET", "/healthz").status_code == 200


@pytest.mark.parametrize(("key", "algorithm"), [("first", "RS256"), ("curve", "ES256")])
def test_a_token_that_holds_lets_in(issuer: Issuer, ask: Ask, key: str, algorithm: str) -> None:
    assert read(ask, issuer.token(key, algorithm)).status_code == 200


def test_a_stream_ends_when_its_token_expires(issuer: Issuer, ask: Ask) -> None:
    headers = {"Authorization": f"Bearer {issuer.token()}"}
    check = ask("POST", "/v1/launch-checks", json={"question": QUESTION, "probes": ["gemm"]}, headers=headers).json()
    ends = {"Authorization": f"Bearer {issuer.token(exp=time() + 1)}"}
    events = [*events_of([ask("GET", f"/v1/launch-checks/{check['id']}/events", headers=ends).content])]
    assert [event.name for event in events] == ["queued", "problem"]
    assert "the token has expired" in events[-1].data


def test_a_key_lets_in_beside_tokens(app: FastAPI, ask: Ask) -> None:
    made = make_key(app.state.engine, KeyRequest(name="x", scopes=["read"]))
    app.state.keys.refresh()
    assert read(ask, made.presented).status_code == 200
    assert read(ask, f"{made.key.id}.wrong").status_code == 401


def test_claims_say_whose_objects_are_and_what_may_be_done(issuer: Issuer, ask: Ask) -> None:
    def post(token: str) -> httpx.Response:
        body = {"name": "x", "question": QUESTION}
        return ask("POST", "/v1/scenarios", json=body, headers={"Authorization": f"Bearer {token}"})

    refused = post(issuer.token(scope="openid looks"))
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "token with the scope write" in refused.json()["detail"]
    assert read(ask, issuer.token(scope="openid")).status_code == 403
    assert read(ask, issuer.token(scope=None)).status_code == 403
    assert read(ask, issuer.token(scope={"ml": True})).status_code == 403
    made = post(issuer.token(scope=["ml", 7, None])).json()
    assert made["owner"] == "ada"
    path = made["links"]["self"]
    assert read(ask, issuer.token(sub="eve"), path).status_code == 404
    assert read(ask, issuer.token(), path).status_code == 200
    admin = issuer.token(sub="root", scope="platform")
    assert read(ask, admin, path).status_code == 200
    (entry,) = read(ask, admin, f"/v1/audit?object={made['id']}&outcome=done").json()["items"]
    assert (entry["caller"], entry["owner"], entry["operation"]) == ("ada", "ada", "createScenario")


def unsigned(claims: dict[str, Any]) -> str:
    return ".".join([encoded({"alg": "none", "typ": "JWT", "kid": "first"}), encoded(claims), ""])


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def signed_with_the_public_key(issuer: Issuer) -> str:
    """HS256 whose secret everybody knows: the classic confusion of algorithms."""
    claims = jwt.decode(issuer.token(), options={"verify_signature": False})
    text = ".".join([encoded({"alg": "HS256", "typ": "JWT", "kid": "first"}), encoded(claims)])
    signature = digest(issuer.public_text("first"), text.encode(), sha256)
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def with_head(issuer: Issuer, **head: Any) -> str:
    """A token whose head says something else than what was signed."""
    _, claims, signature = issuer.token().split(".")
    return f"{encoded({'alg': 'RS256', 'kid': 'first', **head})}.{claims}.{signature}"


def test_a_token_that_does_not_hold_lets_nobody_in(issuer: Issuer, ask: Ask) -> None:
    now = time()
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 600, "scope": "platform"}
    _, _, signature = issuer.token().split(".")
    wrong = {
        "another service": issuer.token(aud="another"),
        "another service ": issuer.token(aud=["another", "one more"]),
        "another issuer": issuer.token(iss="https://id.example.com"),
        "has expired": issuer.token(exp=now - 60),
        "from a later moment": issuer.token(nbf=now + 600),
        "lacks one": issuer.token(exp=None),
        "lacks one ": issuer.token(sub=None),
        "algorithm": unsigned(claims),
        "algorithm ": signed_with_the_public_key(issuer),
        "algorithm  ": issuer.token(algorithm="RS512"),
        "can check": with_head(issuer, typ="x"),
        "can check ": f"{encoded({'alg': 'RS256', 'kid': 'first'})}.{encoded(claims)}.{signature}",
        "can check  ": with_head(issuer, crit=["exp"], exp=1),
        "can check   ": with_head(issuer, kid=7),
        "can check    ": "a.b.c",
        "can check     ": f"{base64.urlsafe_b64encode(b'[' * 5000).decode()}.b.c",
        "can check      ": f"a.b.{'c' * 9000}",
        "can check       ": with_head(issuer, alg="ES256"),
        "whose it is": issuer.token(sub="catalogue"),
        "whose it is ": issuer.token(sub="a\nb"),
        "whose it is  ": issuer.token(sub="a" * 200),
    }
    for why, token in wrong.items():
        answer = read(ask, token)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), (why, answer.text)
        assert why.strip() in answer.json()["detail"], (why, answer.text)
        assert "invalid_token" in answer.headers["www-authenticate"]
        assert not any(part and part in answer.text for part in token.split(".") if len(part) > 8)


@pytest.mark.usefixtures("at_once")
def test_a_key_that_is_no_key_of_the_issuer_lets_nobody_in(issuer: Issuer, ask: Ask) -> None:
    issuer.private["stranger"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for token in (issuer.token("stranger"), with_head(issuer, kid="shared")):
        answer = read(ask, token)
        assert (answer.status_code, "does not have" in answer.json()["detail"]) == (401, True)


@pytest.mark.usefixtures("at_once")
def test_a_new_key_of_the_issuer_is_found_and_an_old_one_goes(
    issuer: Issuer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.private["second"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert read(ask, issuer.token("second")).status_code == 401
    issuer.published = ["second", "curve"]
    assert read(ask, issuer.token("second")).status_code == 200
    assert read(ask, issuer.token("first")).status_code == 401, "it is published no more"
    asked = issuer.asked
    for _ in range(3):
        assert read(ask, issuer.token("second")).status_code == 200
    assert issuer.asked == asked, "what is known costs no look"
    issuer.published = ["first", "curve"]
    monkeypatch.setattr(tokens, "FRESH_SECONDS", 0.0)
    read(ask, issuer.token("second"))
    wait_until(lambda: read(ask, issuer.token("second")).status_code == 401)


def test_unknown_keys_make_nobody_ask_the_issuer_again_and_again(
    issuer: Issuer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.private["stranger"] = issuer.private["first"]
    monkeypatch.setattr(tokens, "APART_SECONDS", 3600.0)
    before = issuer.asked
    assert [read(ask, issuer.token("stranger")).status_code for _ in range(5)] == [401] * 5
    assert issuer.asked - before <= 1


@pytest.mark.usefixtures("at_once")
def test_while_the_issuer_is_away_known_keys_serve_and_others_are_503(issuer: Issuer, ask: Ask) -> None:
    assert read(ask, issuer.token("curve", "ES256")).status_code == 200
    issuer.private["third"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer.status = 500
    try:
        answer = read(ask, issuer.token("third"))
        assert (answer.status_code, answer.json()["code"]) == (503, "issuer_away")
        assert int(answer.headers["retry-after"]) >= 1
        assert read(ask, issuer.token("curve", "ES256")).status_code == 200
        assert read(ask, "a.b.c").status_code == 401
    finally:
        issuer.status = 200
    assert read(ask, issuer.token("third")).status_code == 401


def test_nobody_answers_at_the_address_of_the_keys(tmp_path: Path, issuer: Issuer) -> None:
    url = f"sqlite:///{tmp_path / 'traincost.db'}"
    app = create_app(settings_for(url, "http://127.0.0.1:9/jwks.json"), shipped_catalogue())
    with asking(app) as together:
        assert read(one_by_one(together), issuer.token("curve", "ES256")).status_code == 503


def test_keys_in_a_file_and_claims_of_other_names(tmp_path: Path, issuer: Issuer) -> None:
    file, url = tmp_path / "jwks.json", f"sqlite:///{tmp_path / 'traincost.db'}"
    with pytest.raises(StartupError, match="cannot be read"):
        create_app(settings_for(url, str(file)), shipped_catalogue())
    file.write_bytes(b"[]")
    with pytest.raises(StartupError, match="no JWK set"):
        create_app(settings_for(url, str(file)), shipped_catalogue())
    file.write_bytes(issuer.jwks())
    told = {"oidc_owner_claim": "team", "oidc_scopes_claim": "realm_access.roles", "oidc_algorithms": "ES256"}
    app = create_app(settings_for(url, str(file), **told), shipped_catalogue())
    with asking(app) as together:
        ask = one_by_one(together)
        own: dict[str, Any] = {"team": "vision", "realm_access": {"roles": ["looks"]}, "scope": None}
        assert read(ask, issuer.token("curve", "ES256", **own)).status_code == 200
        assert read(ask, issuer.token("first", **own)).status_code == 401, "RS256 is not taken here"
        assert read(ask, issuer.token("curve", "ES256")).status_code == 401, "it names no team"


def test_keys_that_nobody_can_check_with_are_left_out(issuer: Issuer) -> None:
    assert {*keys_of(issuer.jwks())} == {*issuer.published}
