"""Is a database fit after a start, whatever state it was in and however many processes start at once?"""

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from service.catalogue import Catalogue
from service.errors import StartupError
from service.store.engine import writing
from service.store.prepare import prepare_database
from tests.store.conftest import Prepare
from tests.store.racing import race, start
from tests.store.small import SMALL

EMPTY = Catalogue.of(models=(), gpus=(), clusters=(), prices=())
STARTED_AGAIN = """
import sys
from service.store.prepare import prepare_database
from tests.store.small import SMALL
prepare_database(sys.argv[1], SMALL).dispose()
sys.exit("alembic" in sys.modules)
"""


def test_processes_that_start_at_once_seed_once(database_url: str) -> None:
    reports = race(start, database_url, 4)
    assert reports[0].startswith(f"{SMALL.revision} seeded at ")
    assert set(reports) == {reports[0]}


def test_a_second_start_does_not_import_alembic(database_url: str, prepare: Prepare) -> None:
    prepare()
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", STARTED_AGAIN, database_url], cwd=root, check=True)


def test_a_newer_database_is_left_alone(prepare: Prepare) -> None:
    engine = prepare()
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StartupError, match=r"revision 9999.*newer traincost"):
        prepare(EMPTY)
    with writing(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM gpus")).scalar_one() == len(SMALL.gpus)


def test_tables_of_another_program_are_left_alone(prepare: Prepare, engine: Engine) -> None:
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE models (kept INTEGER)"))
    with pytest.raises(StartupError, match=r"cannot be used: .*models.* already exists"):
        prepare()
    with writing(engine) as connection:
        assert inspect(connection).get_table_names() == ["models"]


def test_an_unreachable_server_is_one_line_without_the_password() -> None:
    with pytest.raises(StartupError, match=r"127.0.0.1") as refusal:
        prepare_database("postgresql://somebody:secret@127.0.0.1:1/costs?password=secret", SMALL)
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match=r"folder .*file cannot be made"):
        prepare_database(f"sqlite:///{tmp_path / 'file' / 'traincost.db'}", SMALL)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"unable to open database file"):
        prepare_database(f"sqlite:///{tmp_path}", SMALL)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "traincost.db"
    path.write_text("These are not the pages of a database. " * 100)
    with pytest.raises(StartupError, match=r"file is not a database"):
        prepare_database(f"sqlite:///{path}", SMALL)
