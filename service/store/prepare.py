"""Is the database fit for this version? Made, migrated and filled at the start, by whichever process comes first.

Looking takes two queries; Alembic, with its second of start-up time, is imported only where something is to be done.
Migration and seeding are one transaction under one lock: a process killed in between leaves nothing half done.
"""

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from service.catalogue import Catalogue
from service.errors import StartupError
from service.store.engine import alone, open_engine, reading, writing
from service.store.seeding import is_seeded, seed

HEAD = "0009"
"""Newest revision in migrations/: what this version expects."""


def prepare_database(url: str, shipped: Catalogue) -> Engine:
    """An engine on a database that holds this version's tables and shipped facts.

    Args:
        url: sqlite:////folder/file.db or postgresql://user:password@host/name
        shipped: the rows that come with this version

    Returns:
        the engine

    Raises:
        StartupError: the URL is wrong, or the database is unreachable, unwritable, or newer than this version
    """
    engine = open_engine(url)
    try:
        _prepare(engine, shipped)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, SQLAlchemyError):
            raise StartupError(_complaint(engine, error)) from None
        raise
    return engine


def _prepare(engine: Engine, shipped: Catalogue) -> None:
    with reading(engine) as connection:
        is_ready = _revision(connection) == HEAD and is_seeded(connection, shipped)
    if not is_ready:
        with writing(engine) as connection:
            alone(connection, patient=True)
            _migrate(connection)
            seed(connection, shipped)


def _complaint(engine: Engine, error: SQLAlchemyError) -> str:
    """What the driver says, in one line with the database but without its password."""
    database = engine.url.set(query={}).render_as_string()
    reason = " ".join(str(getattr(error, "orig", None) or error).split())
    return f"the database {database} cannot be used: {reason}"


def _revision(connection: Connection) -> str | None:
    """The revision that the database is at; None where it has no tables of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _migrate(connection: Connection) -> None:
    found = _revision(connection)
    if found == HEAD:
        return
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StartupError(
            f"the database is at revision {found}, which this version does not know; "
            "it was made by a newer traincost: install that, or name another database in TRAINCOST_DATABASE_URL"
        )
    command.upgrade(config, "head")


def migrations_folder() -> Path:
    """Where the revisions are: inside an installed package, else beside it in a checkout.

    Returns:
        the folder
    """
    package = Path(__file__).parent.parent
    shipped = package / "_migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"
