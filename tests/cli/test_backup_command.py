"""`traincost backup` and `traincost restore`: from one database to another, and what is wrong is said in a line."""

import json
from pathlib import Path

import pytest

from service.store.database import HEAD
from service.store.tables import METADATA
from tests.commands import Commands
from tests.databases import prepared
from tests.store.small import SMALL


def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> None:
    first, second, file = tmp_path / "first.db", tmp_path / "second.db", tmp_path / "nightly.backup"
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{first}")
    backup, restore = (commands(name) for name in ("backup", "restore"))
    none_yet = backup(str(file))
    assert (none_yet.code, none_yet.err) == (
        2, f"traincost: there is no database at {first}; name one in TRAINCOST_DATABASE_URL\n",
    )  # fmt: skip
    prepared(f"sqlite:///{first}", SMALL).dispose()
    made = backup(str(file))
    assert made.code == 0
    assert made.out.startswith(f"backed up 10 rows of {len(METADATA.tables)} tables at revision {HEAD}, as of 20")
    assert backup(str(file)).code == 2
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{second}")
    assert restore(str(file)).out == made.out.replace("backed up", "restored").replace(f": {file}", "")
    again = restore(str(file))
    assert (again.code, again.out) == (2, "")
    assert "say --replace" in again.err
    told = json.loads(restore(str(file), "--replace", "--json").out)
    assert (told["revision"], sum(table["rows"] for table in told["tables"].values())) == (HEAD, 10)
