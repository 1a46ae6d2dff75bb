"""A running `traincost serve`, started in an empty folder with a database of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from service.catalogue import shipped_catalogue
from service.store import Scope, prepare_database
from service.workflows.keys import WantedKey, make_key
from tests.house.source import ROOT

DOCUMENTED = "localhost:8000"
"""Address in the commands that people read."""


def bearer(folder: Path, scope: Scope) -> dict[str, str]:
    """Headers with a key to the service that is started in a folder afterwards, which asks for keys then."""
    engine = prepare_database(f"sqlite:///{folder}/traincost.db", shipped_catalogue())
    made = make_key(engine, WantedKey(name="tests", scopes=[scope]))
    engine.dispose()
    return {"Authorization": f"Bearer {made.presented}"}


@contextmanager
def serving(folder: Path, log: Path | None = None) -> Iterator[str]:
    """Host and port of the service while it runs; every request is a line of the log, where one is wanted."""
    environment = {**os.environ, "TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "service", "serve", "--port", "0"]
    with ExitStack() as stack:
        written = None if log is None else stack.enter_context(log.open("w"))
        if written:
            environment["TRAINCOST_LOG_LEVEL"] = "debug"
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=written, text=True
        )
        try:
            said = (re.search(r"http://([\d.]+:\d+)", line) for line in server.stdout or ())
            found = next((match for match in said if match), None)
            assert found, "the service ended before it said its address"
            yield found[1]
        finally:
            server.terminate()
            server.communicate(timeout=20)
