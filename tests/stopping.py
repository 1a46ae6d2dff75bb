"""A service that is told to stop while it is asked, and callers who go elsewhere once it says that it is not ready."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.house.source import ROOT

LOOK_SECONDS = 0.05
"""Time between two looks of the load balancer at /readyz."""

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
    answered_after: int = 0
    """Answers that began after the process was told to stop."""
    not_ready_seconds: float | None = None
    """Time from there until /readyz said so; None where it did not answer in time, which is an answer too."""
    exit_seconds: float = 0.0
    """Time from there until the process had ended."""
    code: int = 0
    """Exit code."""


def stopped_while_asked(folder: Path, *, callers: int, slow_callers: int, seconds: float, drain: int) -> Stopped:
    """Start a service, ask it from many connections, tell it to stop, and count; its log is in the folder.

    Callers keep asking on their connections until the service is not ready; then they go elsewhere.
    """
    settings = {
        "TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db",
        "TRAINCOST_DRAIN_SECONDS": str(drain),
        "TRAINCOST_LOG_FORMAT": "json",
        "TRAINCOST_LOG_LEVEL": "debug",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "service", "serve", "--port", "0"]
    log = folder / "log"
    with log.open("w") as written:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=subprocess.PIPE, stderr=written, text=True
        )
        try:
            line = process.stdout.readline() if process.stdout else ""
            assert "traincost answers at" in line, log.read_text()
            found = _asked(process, line.split()[3].removeprefix("http://"), callers, slow_callers, seconds)
        finally:
            process.kill()
            process.communicate()
    return found


def _asked(process: "subprocess.Popen[str]", address: str, callers: int, slow: int, seconds: float) -> Stopped:
    found, elsewhere, told = Stopped(), threading.Event(), threading.Event()
    lock = threading.Lock()

    def call(path: str, body: dict[str, Any]) -> None:
        connection = http.client.HTTPConnection(address, timeout=30)
        content = json.dumps(body)
        while not elsewhere.is_set():
            was_told = told.is_set()
            try:
                connection.request("POST", path, content, {"content-type": "application/json"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException) as error:
                with lock:
                    found.failed.append(f"{path}: {type(error).__name__}: {error}")
                connection.close()
                continue
            with lock:
                found.answers[answer.status] += 1
                found.answered_after += was_told
            time.sleep(0.005)

    threads = [threading.Thread(target=call, args=("/v1/memory", QUICK)) for _ in range(callers)]
    threads += [threading.Thread(target=call, args=("/v1/plans", SLOW)) for _ in range(slow)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    began = time.monotonic()
    process.terminate()
    told.set()
    while (status := _status(address)) == 200:
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
