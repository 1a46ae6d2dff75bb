"""The application in process: the shipped catalogue in memory, a database of its own, a client without a network."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.api.app import create_app
from service.catalogue import Catalogue, shipped_catalogue
from service.settings import Settings
from service.store import load_catalogue, prepare_database
from tests.api.asking import QUESTION, Ask


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'traincost.db'}"
    engine = prepare_database(url, shipped_catalogue())
    return create_app(
        Settings(database_url=url, cors_origins=("https://tools.example.org",)), load_catalogue(engine), engine
    )


@pytest.fixture(scope="session")
def catalogue(app: FastAPI) -> Catalogue:
    held: Catalogue = app.state.catalogue
    return held


@pytest.fixture(scope="session")
def ask(app: FastAPI) -> Iterator[Ask]:
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://traincost.test")

        def send(method: str, path: str, **request: Any) -> httpx.Response:
            return runner.run(client.request(method, path, **request))

        yield send
        runner.run(client.aclose())


@pytest.fixture
def question() -> dict[str, Any]:
    return {name: dict(part) if isinstance(part, dict) else part for name, part in QUESTION.items()}
