"""The application in process: a database of its own, a client without a network.

What only memory answers is asked on SQLite alone; what reads or writes a database, on SQLite and on PostgreSQL, and
test_databases.py holds that the first is the same on both.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.api.app import create_app
from service.catalogue import Catalogue, shipped_catalogue
from service.settings import Settings
from service.store import load_catalogue, prepare_database
from tests.api.asking import ADMISSION_TOKEN, QUESTION, Ask, AskTogether
from tests.databases import new_database

NewUrl = Callable[[], str]


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewUrl]:
    """Makes empty databases of one kind."""
    server: str | None = request.getfixturevalue("postgresql_server") if request.param == "postgresql" else None
    with ExitStack() as stack:

        def make() -> str:
            if server is not None:
                return stack.enter_context(new_database(server))
            return f"sqlite:///{tmp_path_factory.mktemp('store') / 'traincost.db'}"

        yield make


def start(url: str) -> FastAPI:
    """The application on a database, as `serve` makes it."""
    engine = prepare_database(url, shipped_catalogue())
    settings = Settings(database_url=url, cors_origins=("https://tools.example.org",), admission_token=ADMISSION_TOKEN)
    return create_app(settings, load_catalogue(engine), engine)


@contextmanager
def running(url: str) -> Iterator[FastAPI]:
    """The application on a database, closed afterwards."""
    started = start(url)
    yield started
    started.state.engine.dispose()


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """The application whose catalogue no test changes, on SQLite."""
    with running(f"sqlite:///{tmp_path_factory.mktemp('memory') / 'traincost.db'}") as started:
        yield started


@pytest.fixture(scope="session")
def kept_app(new_url: NewUrl) -> Iterator[FastAPI]:
    """The application whose catalogue no test changes, on either database."""
    with running(new_url()) as started:
        yield started


@pytest.fixture(scope="session")
def own_app(new_url: NewUrl) -> Iterator[FastAPI]:
    """The application whose catalogue the tests of own rows change, each under slugs of its own."""
    with running(new_url()) as started:
        yield started


@pytest.fixture(scope="session")
def catalogue(app: FastAPI) -> Catalogue:
    held: Catalogue = app.state.catalogue
    return held


@contextmanager
def asking(app: FastAPI) -> Iterator[AskTogether]:
    """Sends requests to an application, several at the same moment."""
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://traincost.test")

        async def gather(requests: list[dict[str, Any]]) -> list[httpx.Response]:
            return await asyncio.gather(*(client.request(**request) for request in requests))

        yield lambda requests: runner.run(gather(requests))
        runner.run(client.aclose())


def one_by_one(together: AskTogether) -> Ask:
    """Sends one request."""

    def send(method: str, path: str, **request: Any) -> httpx.Response:
        (answer,) = together([{"method": method, "url": path, **request}])
        return answer

    return send


@pytest.fixture(scope="session")
def ask(app: FastAPI) -> Iterator[Ask]:
    with asking(app) as together:
        yield one_by_one(together)


@pytest.fixture(scope="session")
def kept(kept_app: FastAPI) -> Iterator[Ask]:
    """Asks the application on either database whose catalogue no test changes."""
    with asking(kept_app) as together:
        yield one_by_one(together)


@pytest.fixture(scope="session")
def own_together(own_app: FastAPI) -> Iterator[AskTogether]:
    with asking(own_app) as together:
        yield together


@pytest.fixture(scope="session")
def own(own_together: AskTogether) -> Ask:
    return one_by_one(own_together)


@pytest.fixture
def question() -> dict[str, Any]:
    return {name: dict(part) if isinstance(part, dict) else part for name, part in QUESTION.items()}
