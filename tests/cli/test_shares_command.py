"""`traincost shares`: links are listed and revoked where the database is reached."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, text

from service.settings import read_settings
from service.store import Engine
from service.store.engine import reading, writing
from service.store.keys import ShareLink, create_share_link
from service.store.tables import SCENARIOS
from tests.commands import Command, Commands
from tests.databases import prepared
from tests.store.small import SMALL

NOW = datetime.now(UTC)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> Command:
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{tmp_path / 'traincost.db'}")
    monkeypatch.setattr("service.catalogue.shipped_catalogue", lambda: SMALL)
    return commands("shares")


@pytest.fixture
def engine(run: Command) -> Engine:  # noqa: ARG001 - it sets up where the database is
    made = prepared(read_settings().database_url, SMALL)
    with writing(made) as connection:
        connection.execute(
            insert(SCENARIOS),
            [{"id": name, "owner": "team", "revision": 1, "created_at": NOW} for name in ("scn_a", "scn_b")],
        )
    for name, days in (("a", 1), ("b", -1)):
        link = ShareLink(
            id=f"shr_{name}",
            scenario_id=f"scn_{name}",
            made_by=None,
            created_at=NOW,
            expires_at=NOW + timedelta(days=days),
        )
        assert create_share_link(made, link, 10)
    return made


def test_links_are_listed_and_revoked(run: Command, engine: Engine) -> None:
    def statuses(*words: str) -> list[tuple[str, str]]:
        return [(one["id"], one["status"]) for one in json.loads(run("list", *words, "--json").out)]

    assert statuses() == [("shr_a", "active"), ("shr_b", "expired")]
    assert statuses("scn_b") == [("shr_b", "expired")]
    assert [line.split()[:3] for line in run("list").out.splitlines()[1:]] == [
        ["shr_a", "active", "scn_a"],
        ["shr_b", "expired", "scn_b"],
    ]
    assert run("revoke", "shr_a").out == "revoked shr_a\n"
    assert statuses("scn_a") == [("shr_a", "revoked")]
    with reading(engine) as connection:
        noted = connection.execute(text("SELECT operation, object FROM audit_log ORDER BY number")).all()
    assert [tuple(one) for one in noted] == [("revokeShare", "scn_a/shr_a")]
    refused = run("revoke", "shr_c")
    assert (refused.code, refused.out) == (2, "")
    assert "no links of this id" in refused.err
    assert run("revoke-unlisted").out == "no unlisted link holds\n"


def test_a_scenario_takes_its_links_with_it(run: Command, engine: Engine) -> None:
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM scenarios WHERE id = 'scn_a'"))
    assert [one["id"] for one in json.loads(run("list", "--json").out)] == ["shr_b"]


def test_links_that_have_ended_make_room_for_others(engine: Engine) -> None:
    def added(number: int) -> bool:
        link = ShareLink(
            id=f"shr_{number}",
            scenario_id="scn_b",
            made_by=None,
            created_at=NOW,
            expires_at=NOW + timedelta(days=1),
        )
        return create_share_link(engine, link, 2)

    assert [added(number) for number in range(3)] == [True, True, False]
