"""The application as tests know it, answered by replicas behind a proxy: TRAINCOST_TEST_REPLICAS=2 asks for it.

Tests send the same requests. What looks into the application's own process, or changes it, cannot be tried so, and is
skipped with that reason.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import httpx
import pytest
from fastapi import FastAPI

from service.api.background import WRITE_SECONDS
from service.catalogue import Catalogue
from service.settings import Settings
from service.store.engine import open_engine
from service.store.history import load_catalogue
from tests.replicas import proxied, replicas

COUNT = int(os.environ.get("TRAINCOST_TEST_REPLICAS", "0"))
"""Replicas that answer the tests of the API; 0 for the application in this process."""

HOST = "localhost"
"""The name under which tests ask, in either case."""

INSIDE = "looks into the process that answers"
SENT: list[str] = []
"""Every request that went to replicas: its method."""


class _Keys:
    """Keys that tests make, as replicas hear of them."""

    def refresh(self) -> None:
        """Wait until every replica has looked."""
        time.sleep(2 * WRITE_SECONDS)


class _State:
    """What tests may know of the application's state: the database, which is theirs too, and what follows from it."""

    def __init__(self, url: str) -> None:
        vars(self).update(engine=open_engine(url), keys=_Keys())

    @property
    def catalogue(self) -> Catalogue:
        """The facts that every replica has to answer from."""
        return load_catalogue(vars(self)["engine"]).everyone

    def __setattr__(self, name: str, value: object) -> NoReturn:
        pytest.skip(f"changes the process that answers: state.{name}")

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"{INSIDE}: state.{name}")


class Replicated:
    """Replicas in the place of an application."""

    def __init__(self, url: str, address: str) -> None:
        self.address = address
        self.state = _State(url)

    async def __call__(self, *_: object) -> None:
        pytest.skip(f"{INSIDE}: calls the application itself")

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"{INSIDE}: {name}")


@contextmanager
def replicated(url: str, settings: Settings, first: str = "") -> Iterator[Any]:
    """Replicas on a database, set up as the application would be, each after some statements."""
    given = {
        "TRAINCOST_CORS_ORIGINS": ",".join(settings.cors_origins),
        "TRAINCOST_ADMISSION_TOKEN": settings.admission_token or "",
    }
    with replicas(url, COUNT, given, first) as started, proxied([one.address for one in started]) as address:
        served = Replicated(url, address)
        yield served
        served.state.engine.dispose()


def in_this_process(app: FastAPI | Replicated) -> None:
    """Skip a test that takes something of this process away, where others answer."""
    if isinstance(app, Replicated):
        pytest.skip(f"{INSIDE}: takes its threads")


def client_of(app: FastAPI | Replicated) -> httpx.AsyncClient:
    """A client of the application, or of its replicas, under the same name."""
    if isinstance(app, Replicated):
        return httpx.AsyncClient(
            base_url=f"http://{app.address}", headers={"Host": HOST}, timeout=60, event_hooks={"request": [_note]}
        )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{HOST}")


async def _note(request: httpx.Request) -> None:
    SENT.append(request.method)
