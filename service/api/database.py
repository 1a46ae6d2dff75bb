"""Which database does a route of the store speak to?"""

from typing import Annotated

from fastapi import Depends, Request

from service.errors import Unreachable
from service.store import Engine

NO_DATABASE = "the service runs without a database"


def database_of(request: Request) -> Engine:
    """The database of the application.

    Args:
        request: the request

    Returns:
        the database

    Raises:
        Unreachable: the application has none
    """
    engine: Engine | None = request.app.state.engine
    if engine is None:
        raise Unreachable(NO_DATABASE)
    return engine


Database = Annotated[Engine, Depends(database_of)]
"""Argument of a route that reads or writes the database itself."""
