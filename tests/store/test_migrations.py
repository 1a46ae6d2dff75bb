"""Does every revision lead up and down again, and does the newest one make the tables that the code expects?"""

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect

from service.store.engine import writing
from service.store.prepare import HEAD, migrations_folder
from service.store.tables import METADATA

INI = migrations_folder() / "alembic.ini"


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
