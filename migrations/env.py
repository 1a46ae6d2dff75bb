"""Brings a database to a revision: on the caller's connection, else on the database of the settings."""

from alembic import context
from sqlalchemy import Connection

from service.settings import read_settings
from service.store.engine import alone, open_engine, writing
from service.store.tables import METADATA


def migrate(connection: Connection) -> None:
    """Run the revisions inside the connection's transaction; whoever comes second finds nothing left to do."""
    alone(connection, patient=True)
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        compare_server_default=True,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is None:
    engine = open_engine(read_settings().database_url)
    with writing(engine) as own:
        migrate(own)
    engine.dispose()
else:
    migrate(given)
