"""An application without launch checks and workers, for each test."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from sqlalchemy import delete

from service.store.engine import writing
from service.store.tables import JOBS, WORKERS
from tests.api.asking import Ask
from tests.fixtures import asking, one_by_one


@pytest.fixture
def ask(fresh_app: FastAPI) -> Iterator[Ask]:
    with writing(fresh_app.state.engine) as connection:
        connection.execute(delete(JOBS))
        connection.execute(delete(WORKERS))
    with asking(fresh_app) as together:
        yield one_by_one(together)
