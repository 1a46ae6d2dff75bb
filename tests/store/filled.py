"""A database of either kind with the rows of one table, for tests of lists that are read some rows at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from sqlalchemy import Table, insert

from service.store import Engine
from service.store.engine import writing
from tests.databases import new_database, prepared
from tests.store.small import SMALL


@contextmanager
def filled(request: pytest.FixtureRequest, table: Table, rows: Sequence[Mapping[str, Any]]) -> Iterator[Engine]:
    """A database of the kind that a fixture's parameter names, with such rows in a table."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            folder = request.getfixturevalue("tmp_path_factory").mktemp("filled")
            url = f"sqlite:///{folder / 'traincost.db'}"
        else:
            url = stack.enter_context(new_database(request.getfixturevalue("postgresql_server")))
        engine = prepared(url, SMALL)
        stack.callback(engine.dispose)
        with writing(engine) as connection:
            connection.execute(insert(table), rows)
        yield engine
