"""`traincost keys`: a secret is told once, a list tells none, and what is wrong is said in a line."""

import json
import re
import shlex
from pathlib import Path

import pytest
from sqlalchemy import text

from service.settings import read_settings
from service.store.engine import reading
from service.store.keys import KeyRing
from tests.commands import Command, Commands
from tests.databases import prepared
from tests.house.source import ROOT
from tests.store.small import SMALL

PRESENTED = re.compile(r"tck_[\w-]{8}\.[\w-]{43}\n")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> Command:
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{tmp_path / 'traincost.db'}")
    monkeypatch.setattr("service.catalogue.shipped_catalogue", lambda: SMALL)
    return commands("keys")


def test_a_key_is_made_listed_and_revoked(run: Command) -> None:
    made = run("create", "--name", "nightly checks", "--scope", "sheet", "--scope", "read", "--days", "3")
    assert made.code == 0
    assert PRESENTED.fullmatch(made.out)
    assert "not shown again" in made.err
    key_id, secret = made.out.strip().split(".")
    told = json.loads(run("create", "--name", "x", "--owner", "budget", "--scope", "admin", "--json").out)
    assert PRESENTED.fullmatch(f"{told['key']}\n")
    assert (told["owner"], told["scopes"], told["expires_at"], told["standing"]) == (
        "budget",
        ["admin"],
        None,
        "active",
    )
    assert run("revoke", key_id).out == f"revoked {key_id}\n"
    assert re.fullmatch(rf"was revoked already, at 2\S+: {key_id}\n", run("revoke", key_id).out)
    with reading(prepared(read_settings().database_url, SMALL)) as connection:
        deeds = connection.execute(text("SELECT operation FROM audit_log ORDER BY number")).scalars().all()
    assert deeds == ["createKey", "createKey", "revokeKey"]
    whole, listed = run("list", "--json").out, run("list").out
    assert [(key["id"], key["standing"]) for key in json.loads(whole)] == [(key_id, "revoked"), (told["id"], "active")]
    assert json.loads(whole)[0]["scopes"] == ["read", "sheet"]
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [[key_id, "revoked"], [told["id"], "active"]]
    for told_of in (whole, listed):
        assert secret not in told_of
        assert "digest" not in told_of
    assert json.loads(whole)[0]["created_at"] in listed
    ring = KeyRing(prepared(read_settings().database_url, SMALL))
    assert ring.find(told["key"]) is not None


def test_a_key_has_limits_of_its_own(run: Command) -> None:
    words = ("create", "--name", "sheet", "--scope", "sheet", "--json")
    made = json.loads(run(*words, "--requests-per-minute", "600", "--request-burst", "3000").out)
    plain = json.loads(run(*words).out)

    def limits() -> list[tuple[int | None, int | None]]:
        listed = json.loads(run("list", "--json").out)
        assert [key["id"] for key in listed] == [made["id"], plain["id"]]
        return [(key["requests_per_minute"], key["request_burst"]) for key in listed]

    assert limits() == [(600, 3000), (None, None)]
    assert (made["requests_per_minute"], made["request_burst"]) == (600, 3000)
    assert [line.split()[-2:] for line in run("list").out.splitlines()[1:]] == [["600", "3000"], ["-", "-"]]
    assert run("limit", plain["key"], "--requests-per-minute", "0").out == f"limited {plain['id']}\n"
    assert json.loads(run("limit", made["id"], "--json").out)["requests_per_minute"] is None
    assert limits() == [(None, None), (0, None)]


@pytest.mark.parametrize("page", [f"service/web/guide/{name}.html" for name in ("keys", "spreadsheets", "schedulers")])
def test_the_commands_that_people_read_make_keys(page: str, run: Command) -> None:
    commands = re.findall(r"traincost keys (create --[^<`\n]*)", (ROOT / page).read_text(encoding="utf-8"))
    assert commands
    assert all(PRESENTED.fullmatch(run(*shlex.split(command)).out) for command in commands)


def test_a_key_is_made_with_how_it_is_sent(run: Command) -> None:
    for scopes, sheet, worker in (
        (["sheet"], True, False),
        (["worker"], False, True),
        (["sheet", "read"], False, False),
    ):
        said = run("create", "--name", "x", *(word for scope in scopes for word in ("--scope", scope))).err
        assert ("key=KEY" in said, "TRAINCOST_TOKEN" in said) == (sheet, worker)
        assert "Authorization: Bearer KEY" in said


def test_a_database_that_is_not_there_is_named_and_not_made(run: Command, tmp_path: Path) -> None:
    for words in (("list",), ("revoke", "tck_12345678"), ("limit", "tck_12345678")):
        ran = run(*words)
        assert (ran.code, ran.out) == (2, "")
        assert f"there is no database at {tmp_path / 'traincost.db'}" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_is_said_in_a_line(run: Command, tmp_path: Path) -> None:
    prepared(read_settings().database_url, SMALL).dispose()
    assert run("list").out.startswith(f"no keys in sqlite:///{tmp_path / 'traincost.db'}")
    for words, said in (
        (("create", "--name", "x", "--scope", "everything"), "read, write, worker, admin or sheet"),
        (("create", "--name", " ", "--scope", "read"), "name is empty"),
        (("create", "--name", "x", "--scope", "read", "--owner", "a\nb"), "owner is empty"),
        (("create", "--name", "x", "--scope", "read", "--days", "0"), "1 to 3650"),
        (("create", "--name", "x", "--scope", "read", "--request-burst", "0"), "1 to 1000000"),
        (("create", "--name", "x", "--scope", "read", "--requests-per-minute", "-1"), "0 to 10000000"),
        (("revoke", "tck_12345678"), "no key of this id in sqlite:///"),
        (("limit", "tck_12345678"), "no key of this id"),
        (("limit", "tck_12345678", "--request-burst", "1000001"), "1 to 1000000"),
    ):
        ran = run(*words)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
    assert run("list").out.startswith("no keys")
