"""The application in process: a database of its own, a client without a network.

What only memory answers is asked on SQLite alone; what reads or writes a database, on SQLite and on PostgreSQL, and
test_databases.py holds that the first is the same on both. replicated.py puts replicas behind a proxy in its place.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from service.app import create_app
from service.catalogue import Catalogue, shipped_catalogue
from service.settings import Settings
from service.store.history import load_catalogue
from tests.api import replicated
from tests.api.asking import ADMISSION_TOKEN, QUESTION, Ask, AskTogether
from tests.commands import Command, Commands
from tests.contracts import committed_contract
from tests.databases import new_database, prepared
from tests.live import serving
from tests.secrecy import look_into

if TYPE_CHECKING:
    from tests.api.callers import Service
    from tests.api.matrix import Operation, Tried

NewUrl = Callable[[], str]

sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]  # else httpx looks for it in every folder, each time


@pytest.fixture(scope="session", params=None if replicated.COUNT else ["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewUrl]:
    """Makes empty databases of one kind."""
    kind = getattr(request, "param", "postgresql")
    server: str | None = request.getfixturevalue("postgresql_server") if kind == "postgresql" else None
    with ExitStack() as stack:

        def make() -> str:
            if server is not None:
                return stack.enter_context(new_database(server))
            return f"sqlite:///{tmp_path_factory.mktemp('store') / 'traincost.db'}"

        yield make


def settings_for(url: str) -> Settings:
    """How the application is set up."""
    return Settings(database_url=url, cors_origins=("https://tools.example.org",), admission_token=ADMISSION_TOKEN)


def application(settings: Settings) -> FastAPI:
    """The application on a database, as `serve` makes it."""
    engine = prepared(settings.database_url, shipped_catalogue())
    return create_app(settings, load_catalogue(engine), engine)


@contextmanager
def running(url: str, first: str = "") -> Iterator[FastAPI]:
    """The application on a database, closed afterwards, or replicas of it, each of which runs `first` before."""
    if replicated.COUNT and url.startswith("postgresql"):
        with replicated.replicated(url, settings_for(url), first) as several:
            yield several
        return
    started = application(settings_for(url))
    yield started
    started.state.engine.dispose()


@pytest.fixture(autouse=True)
def beside_replicas(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Where replicas answer: skips what changes this process, and notes how many requests a test sent them."""
    if replicated.COUNT and "monkeypatch" in request.fixturenames:
        pytest.skip("changes the process that answers")
    before = len(replicated.SENT)
    yield
    if replicated.COUNT:
        record_property("sent_to_replicas", len(replicated.SENT) - before)


@pytest.fixture(scope="session")
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """The application whose catalogue no test changes, on SQLite; the replicas where they are asked for."""
    if replicated.COUNT:
        yield request.getfixturevalue("kept_app")
        return
    with running(f"sqlite:///{tmp_path_factory.mktemp('memory') / 'traincost.db'}") as started:
        yield started


@pytest.fixture(scope="session")
def document() -> dict[str, Any]:
    """The contract, which is the same whatever the catalogue and the database hold."""
    return committed_contract()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of `traincost serve` for the tests of a module, with a database of its own."""
    with serving(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    return lambda name: Command(name, capsys, monkeypatch)


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


@pytest.fixture(scope="module")
def fresh_app(new_url: NewUrl) -> Iterator[FastAPI]:
    """An application of one module's tests, on either database."""
    with running(new_url()) as started:
        yield started


@pytest.fixture(scope="session")
def catalogue(app: FastAPI) -> Catalogue:
    return load_catalogue(app.state.engine).everyone


@contextmanager
def asking(app: FastAPI) -> Iterator[AskTogether]:
    """Sends requests to an application, several at the same moment."""
    with asyncio.Runner() as runner:
        client = replicated.client_of(app)

        async def gather(requests: list[dict[str, Any]]) -> list[httpx.Response]:
            answers = await asyncio.gather(*(client.request(**request) for request in requests))
            for answer in answers:
                if answer.is_error:
                    look_into(f"{answer.text} {answer.headers}", f"the {answer.status_code} of {answer.url.path}")
            return answers

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


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Service"]:
    """A service that asks for keys, with callers of every kind."""
    from tests.api.callers import service_of_callers

    with service_of_callers(f"sqlite:///{tmp_path_factory.mktemp('callers') / 'traincost.db'}") as found:
        yield found


@pytest.fixture(scope="session")
def operations(document: dict[str, Any]) -> list["Operation"]:
    """All that the contract has: what reads first, what deletes last."""
    from tests.api.matrix import operations_of

    return operations_of(document)


@pytest.fixture(scope="session")
def tried(service: "Service", operations: list["Operation"]) -> "Tried":
    """What came of trying every operation as every caller."""
    from tests.api.matrix import trial

    return trial(service, operations)
