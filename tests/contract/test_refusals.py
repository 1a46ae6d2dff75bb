"""Each operation's errors are those that the contract declares."""

from collections.abc import Iterator

import pytest

from service.app import create_app
from service.catalogue import shipped_catalogue
from service.settings import Settings
from service.store.engine import open_engine
from service.store.keys import KeyRing
from tests.api.asking import ADMISSION_TOKEN, Ask
from tests.contract.record import Document, request_of
from tests.contracts import resolved
from tests.fixtures import asking, one_by_one

EARLIER = {"rev": "000000000000", "revision": "1"}
"""Parameters that make a path look into the database."""


@pytest.fixture(scope="module")
def alone() -> Iterator[Ask]:
    """Asks a service whose database does not answer."""
    engine = open_engine("postgresql://somebody@127.0.0.1:1/costs")
    settings = Settings(admission_token=ADMISSION_TOKEN)
    with asking(create_app(settings, shipped_catalogue(), engine, KeyRing(None))) as together:
        yield one_by_one(together)
    engine.dispose()


def test_what_needs_the_database_says_so(alone: Ask, document: Document) -> None:
    wrong = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            taken = {resolved(document, one)["name"] for one in operation.get("parameters", ())}
            request = request_of(document, (path, method))
            request["params"] |= {name: value for name, value in EARLIER.items() if name in taken}
            request["params"] |= {"on_error": "problem"} if path.startswith("/v1/cell/") else {}
            answer = alone(method.upper(), **request)
            if (answer.status_code == 503) != ("503" in operation["responses"]):
                wrong.append((method, path, answer.status_code))
    assert wrong == [], "\n".join(map(str, wrong))
