"""Every revision migrates up and down, and the newest makes the tables of the code."""

from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.operations import ops
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, select

from service.store.backups import FORMER_TABLES, described_tables
from service.store.database import HEAD, migrations_folder
from service.store.engine import open_engine, writing
from service.store.tables import METADATA
from tests.store.expanding import faults, recorded
from tests.store.holding import fill

INI = migrations_folder() / "alembic.ini"
BEFORE_THE_RULE = {"0002", "0004", "0006"}
"""Revisions of the time before any release, which took a default away in the step that added its column."""


def _config(connection: Connection | None = None) -> Config:
    return Config(str(INI), attributes={"connection": connection})


def _tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names()) - {"alembic_version"}


def test_the_newest_revision_is_the_one_that_the_code_expects() -> None:
    assert ScriptDirectory.from_config(_config()).get_heads() == [HEAD]


def test_files_are_named_by_date_and_revision() -> None:
    for script in ScriptDirectory.from_config(_config()).walk_revisions():
        name = script.path.rpartition("/")[2]
        assert name[:4].isdigit()
        assert name[10:].startswith(f"_{script.revision}_")


def test_up_down_and_up_again(engine: Engine) -> None:
    for _ in range(2):
        with writing(engine) as connection:
            command.upgrade(_config(connection), "head")
            assert _tables(connection) == set(METADATA.tables)
            command.downgrade(_config(connection), "base")
            assert _tables(connection) == set()


def test_the_tables_of_the_newest_revision_are_those_of_the_code(engine: Engine) -> None:
    with writing(engine) as connection:
        command.upgrade(_config(connection), "head")
    with writing(engine) as connection:
        command.check(_config(connection))


def test_a_difference_from_the_code_is_found(engine: Engine) -> None:
    with writing(engine) as connection:
        command.upgrade(_config(connection), "head")
        METADATA.tables["seedings"].drop(connection)
        with pytest.raises(Exception, match="seedings"):
            command.check(_config(connection))


def test_the_command_line_of_alembic_takes_the_database_of_the_settings(
    database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", database_url)
    command.upgrade(_config(), "head")
    with writing(engine) as connection:
        assert _tables(connection) == set(METADATA.tables)


def _revisions() -> list[Script]:
    return [*ScriptDirectory.from_config(_config()).walk_revisions()][::-1]


def test_a_revision_adds_and_only_a_contraction_takes_away(sqlite_url: str) -> None:
    engine, tables, found = open_engine(sqlite_url), set[str](), {}
    for script in _revisions():
        operations: list[Any] = []
        with writing(engine) as connection, recorded(operations):
            command.upgrade(_config(connection), script.revision)
        assert operations
        found[script.revision] = faults(script, operations)
        with writing(engine) as connection:
            tables |= _tables(connection)
    engine.dispose()
    assert {revision: wrong for revision, wrong in found.items() if wrong and revision not in BEFORE_THE_RULE} == {}
    assert all(found[revision] for revision in BEFORE_THE_RULE)
    assert tables - METADATA.tables.keys() == FORMER_TABLES, "tables that a backup of an older database would leave out"


def _script(revision: str, **said: str) -> Script:
    module = ModuleType(revision)
    vars(module).update(said, down_revision=None)
    return Script(module, revision, "")


NARROWER = ops.AlterColumnOp("jobs", "kind", modify_nullable=False)
GONE, RENAMED = ops.DropColumnOp("jobs", "kind"), ops.AlterColumnOp("jobs", "kind", modify_name="sort")
ADDED = ops.AddColumnOp("jobs", sa.Column("colour", sa.String))


@pytest.mark.parametrize(
    ("said", "operations", "complaint"),
    [
        ({}, [GONE, ADDED], "takes column jobs.kind away"),
        ({}, [RENAMED], "narrows column jobs.kind"),
        ({}, [NARROWER], "narrows column jobs.kind"),
        ({}, [ops.DropTableOp("jobs")], "takes table jobs away"),
        ({}, [ops.RenameTableOp("jobs", "work")], "takes table jobs away"),
        ({}, [ops.ExecuteSQLOp("ALTER TABLE jobs RENAME TO work")], "says"),
        ({}, [ops.AddColumnOp("jobs", sa.Column("colour", sa.String, nullable=False))], "cannot fill"),
        ({"contracts": "0099"}, [GONE, ADDED], "make two revisions of it"),
        ({"contracts": "0100"}, [GONE], "no earlier revision"),
        ({"contracts": "0099"}, [ADDED], "contracts nothing"),
    ],
)
def test_what_would_break_the_release_before_is_refused(
    said: dict[str, str], operations: list[Any], complaint: str
) -> None:
    assert any(complaint in fault for fault in faults(_script("0100", **said), operations))


@pytest.mark.parametrize(("said", "operation"), [({}, ADDED), ({"contracts": "0099"}, GONE)])
def test_what_adds_and_what_contracts_later_are_not(said: dict[str, str], operation: Any) -> None:
    assert faults(_script("0100", **said), [operation]) == []


def test_the_release_before_reads_and_writes_on(engine: Engine) -> None:
    before, newest = (script.revision for script in _revisions()[-2:])
    with writing(engine) as connection:
        command.upgrade(_config(connection), before)
        fill(connection, 2)
        known = described_tables(connection)
        held = {table.name: _rows(connection, table) for table in known}
        command.upgrade(_config(connection), newest)
        assert {table.name: _rows(connection, table) for table in known} == held
        for table in reversed(known):
            connection.execute(sa.delete(table))
        for table in known:
            connection.execute(sa.insert(table), [dict(row) for row in held[table.name]])
        assert {table.name: _rows(connection, table) for table in known} == held


def _rows(connection: Connection, table: sa.Table) -> list[Any]:
    return sorted((dict(row) for row in connection.execute(select(table)).mappings()), key=repr)
