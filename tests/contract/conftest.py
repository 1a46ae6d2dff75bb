"""The application whose contract is read, in process, on SQLite."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI

from tests.api.asking import Ask
from tests.fixtures import asking, one_by_one, running


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    with running(f"sqlite:///{tmp_path_factory.mktemp('contract') / 'traincost.db'}") as started:
        yield started


@pytest.fixture(scope="session")
def ask(app: FastAPI) -> Iterator[Ask]:
    with asking(app) as together:
        yield one_by_one(together)
