"""Is the database fit for this version? Made, migrated and filled at the start, by whichever process comes first.

Looking takes two queries; Alembic, with its second of start-up time, is imported only where something is to be done.
Migration and seeding are one transaction under one lock: a process killed in between leaves nothing half done.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from service.catalogue import Catalogue
from service.errors import StartupError, TraincostError
from service.settings import DATABASE_CONNECTIONS
from service.store.engine import alone, open_engine, place_of, reading, writing
from service.store.seeding import is_seeded, seed

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0021"
"""Newest revision in migrations/: what this version expects."""


def prepare_database(url: str, shipped: Catalogue, connections: int = DATABASE_CONNECTIONS) -> Engine:
    """An engine on a database that holds this version's tables and shipped facts.

    Args:
        url: sqlite:////folder/file.db or postgresql://user:password@host/name
        shipped: the rows that come with this version
        connections: how many the engine holds at once

    Returns:
        the engine

    Raises:
        StartupError: the URL is wrong, or the database is unreachable, unwritable, or newer than this version
    """
    engine = open_engine(url, connections=connections)
    try:
        _prepare(engine, shipped)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, SQLAlchemyError):
            raise StartupError(complaint(engine, error)) from None
        raise
    return engine


def _prepare(engine: Engine, shipped: Catalogue) -> None:
    with reading(engine) as connection:
        is_ready = revision_in(connection) == HEAD and is_seeded(connection, shipped)
    if not is_ready:
        with writing(engine) as connection:
            alone(connection, patient=True)
            migrate(connection)
            seed(connection, shipped)


def complaint(engine: Engine, error: Exception) -> str:
    """What the driver says, in one line with the database but without its password.

    Args:
        engine: the database
        error: what was raised

    Returns:
        the line
    """
    reason = " ".join(str(getattr(error, "orig", None) or error).split())
    return f"the database {place_of(engine)} cannot be used: {reason}"


def revision_in(connection: Connection) -> str | None:
    """The revision that a database is at.

    Args:
        connection: the database

    Returns:
        the revision; None where it has no tables of ours
    """
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def migrate(connection: Connection, revision: str = HEAD) -> None:
    """Bring a database up to a revision; one that is there already is left alone.

    Args:
        connection: the database, inside a writing transaction, alone
        revision: the revision

    Raises:
        StartupError: the database is at a revision that this version does not know
    """
    found = revision_in(connection)
    if found == revision:
        return
    if found is not None:
        refuse_unknown(found, "the database", StartupError)
    from alembic import command

    command.upgrade(_config(connection), revision)


def refuse_unknown(revision: str, what: str, error: type[TraincostError]) -> None:
    """Refuse what a newer version made.

    Args:
        revision: its revision
        what: what is at that revision
        error: what is raised

    Raises:
        TraincostError: this version does not know the revision
    """
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision not in known:
        raise error(
            f"{what} is at revision {revision}, which this version does not know; "
            "it was made by a newer traincost: install that, or name another one"
        )


def _config(connection: Connection | None = None) -> "Config":
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def migrations_folder() -> Path:
    """Where the revisions are: inside an installed package, else beside it in a checkout.

    Returns:
        the folder
    """
    package = Path(__file__).parent.parent
    shipped = package / "_migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"
