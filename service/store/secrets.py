"""The secret that share links are signed with: shared by all processes, made when it is first needed."""

from collections.abc import Mapping
from datetime import UTC, datetime
from secrets import token_bytes
from typing import Any

from sqlalchemy import Connection, Engine, select
from sqlalchemy.dialects import postgresql, sqlite

from service.store.engine import answering, writing
from service.store.key_tables import SERVER_SECRETS

LINKS = "listed share links"
UNLISTED_LINKS = "share links"
"""What earlier versions signed links with, of which no row is kept; without it they do not hold."""
SECRET_BYTES = 32
_INSERT: Mapping[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def make_signing_secret(engine: Engine) -> bytes:
    """The secret that links are signed with, made where there is none yet.

    Args:
        engine: the database

    Returns:
        the secret; of many processes that make one at once, all get the same

    Raises:
        Unreachable: the database does not answer
    """
    fresh = token_bytes(SECRET_BYTES)
    made = {"name": LINKS, "secret": fresh, "made_at": datetime.now(UTC)}
    with answering(), writing(engine) as connection:
        connection.execute(_INSERT[connection.dialect.name](SERVER_SECRETS).values(made).on_conflict_do_nothing())
        secret = signing_secret_in(connection)
    return fresh if secret is None else secret


def signing_secret_in(connection: Connection) -> bytes | None:
    """The secret that links are signed with; None where no link was ever made."""
    return signing_secrets_in(connection).get(LINKS)


def signing_secrets_in(connection: Connection) -> Mapping[str, bytes]:
    """The secrets that links are, or were, signed with, by name."""
    query = select(SERVER_SECRETS.c.name, SERVER_SECRETS.c.secret)
    return {name: secret for name, secret in connection.execute(query) if name in {LINKS, UNLISTED_LINKS}}
