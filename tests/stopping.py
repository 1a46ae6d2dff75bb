"""A service that is told to stop while it is asked, and callers who go elsewhere once it says that it is not ready."""

import http.client
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.catalogue import shipped_catalogue
from tests.databases import prepared
from tests.house.source import ROOT
from tests.prestarted import Process, started
from tests.waiting import wait_until

LOOK_SECONDS = 0.05
"""Time between two looks of the load balancer at /readyz."""
MOST_SECONDS = 120.0
"""Longest wait for answers before the process is told to stop."""

SLOW: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 64},
    "layout": {},
    "cluster": {"gpu": "h100", "gpus": 16},
}
"""A search, which takes as long as many estimates, sent to /v1/plans."""

QUICK: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192},
    "cluster": {"gpu": "h100", "gpus": 8},
}


@dataclass(slots=True)
class Stopped:
    """What happened."""

    answers: Counter[int] = field(default_factory=Counter)
    """Answers by status."""
    failed: list[str] = field(default_factory=list)
    """What callers met instead of an answer."""
    cut: int = 0
    """Searches that the end of the process cut, each answered 503; none where the machine has time for them."""
    answered_after: int = 0
    """Answers that began after the process was told to stop."""
    not_ready_seconds: float | None = None
    """Time from there until /readyz said so; None where it did not answer in time, which is an answer too."""
    exit_seconds: float = 0.0
    """Time from there until the process had ended."""
    code: int = 0
    """Exit code."""


def stopped_while_asked(
    folder: Path, *, callers: int, slow_callers: int, drain: int, seconds: float = 0.0, pause: float = 0.005
) -> Stopped:
    """Start a service, ask it from many connections, tell it to stop, and count; its log is in the folder.

    Callers ask for some seconds, with pauses, and until each path has answered. Then the process gets SIGTERM. Callers
    keep asking on their connections until the service is not ready and has answered a later request; then they go
    elsewhere. A request that began in the first half of the drain must be answered, however busy the machine is.
    """
    settings = {
        "TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db",
        "TRAINCOST_DRAIN_SECONDS": str(drain),
        "TRAINCOST_LOG_FORMAT": "json",
        "TRAINCOST_LOG_LEVEL": "debug",
        "PYTHONPATH": str(ROOT),
    }
    words = ["service", "serve", "--port", "0", "--no-worker"]
    prepared(settings["TRAINCOST_DATABASE_URL"], shipped_catalogue()).dispose()
    log = folder / "log"
    with log.open("w") as written:
        process = started(words, folder, {**os.environ, **settings}, written)
        try:
            line = process.stdout.readline() if process.stdout else ""
            assert "traincost answers at" in line, log.read_text()
            among = {"/v1/memory": (QUICK, callers), "/v1/plans": (SLOW, slow_callers)}
            found = _asked(process, line.split()[3].removeprefix("http://"), among, (seconds, pause), drain)
        finally:
            process.kill()
            process.communicate(timeout=60)
    return found


def _asked(
    process: Process,
    address: str,
    among: Mapping[str, tuple[dict[str, Any], int]],
    spell: tuple[float, float],
    drain: float,
) -> Stopped:
    seconds, pause = spell
    found, elsewhere, told = Stopped(), threading.Event(), threading.Event()
    lock, heard, last = threading.Lock(), set[str](), [math.inf]

    def call(path: str, body: dict[str, Any]) -> None:
        connection = http.client.HTTPConnection(address, timeout=60)
        content = json.dumps(body)
        while not elsewhere.is_set():
            was_told, began = told.is_set(), time.monotonic()
            try:
                connection.request("POST", path, content, {"content-type": "application/json"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if began > last[0]:
                    return
                with lock:
                    found.failed.append(f"{path}: {type(error).__name__}: {error}")
                continue
            with lock:
                heard.add(path)
                if body is SLOW and answer.status == 503 and told.is_set():
                    found.cut += 1
                else:
                    found.answers[answer.status] += 1
                found.answered_after += was_told
            time.sleep(pause)
        connection.close()

    threads = [
        threading.Thread(target=call, args=(path, body)) for path, (body, many) in among.items() for _ in range(many)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    wait_until(lambda: heard == among.keys() or bool(found.failed), MOST_SECONDS)
    began = time.monotonic()
    last[0] = began + drain / 2
    process.terminate()
    told.set()
    while (status := _status(address)) == 200:
        time.sleep(LOOK_SECONDS)
    while not found.answered_after and time.monotonic() < last[0]:
        time.sleep(LOOK_SECONDS)
    elsewhere.set()  # as a load balancer does, whatever it hears but 200
    found.not_ready_seconds = time.monotonic() - began if status == 503 else None
    found.code = process.wait(timeout=30)
    found.exit_seconds = time.monotonic() - began
    for thread in threads:
        thread.join()
    return found


def _status(address: str) -> int | None:
    connection = http.client.HTTPConnection(address, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
