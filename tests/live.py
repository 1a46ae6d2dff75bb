"""A running `traincost serve`, started in a folder of its own with a database of its own."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from service.api.access.key_rules import KeyRequest, make_key
from service.catalogue import shipped_catalogue
from service.store.keys import Scope
from tests.databases import prepared
from tests.house.source import ROOT
from tests.prestarted import started
from tests.secrecy import look_into

DOCUMENTED = "localhost:8000"
"""Address in the commands that people read."""


def bearer(folder: Path, scope: Scope) -> dict[str, str]:
    """Headers with a key to the service that is started in a folder afterwards, which asks for keys then."""
    engine = prepared(f"sqlite:///{folder}/traincost.db", shipped_catalogue())
    made = make_key(engine, KeyRequest(name="tests", scopes=[scope]))
    engine.dispose()
    return {"Authorization": f"Bearer {made.presented}"}


@contextmanager
def serving(folder: Path, log: Path | None = None, *, with_worker: bool = False) -> Iterator[str]:
    """Host and port of the service while it runs; every request is a line of the log, where one is wanted."""
    environment = {**os.environ, "TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db", "PYTHONPATH": str(ROOT)}
    words = ["service", "serve", "--port", "0", *([] if with_worker else ["--no-worker"])]
    prepared(f"sqlite:///{folder}/traincost.db", shipped_catalogue()).dispose()
    with ExitStack() as stack:
        written = None if log is None else stack.enter_context(log.open("w"))
        if written:
            environment["TRAINCOST_LOG_LEVEL"] = "debug"
        server = started(words, folder, environment, written)
        try:
            said = (re.search(r"http://([\d.]+:\d+)", line) for line in server.stdout or ())
            found = next((match for match in said if match), None)
            assert found, "the service ended before it said its address"
            yield found[1]
        finally:
            server.terminate()
            server.communicate(timeout=60)
            if log is not None:
                looked_through(log)


def looked_through(log: Path) -> None:
    """Note a key that stands in the log of a service."""
    look_into(log.read_text(encoding="utf-8", errors="replace"), f"the log {log}")
