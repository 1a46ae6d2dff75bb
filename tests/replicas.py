"""Replicas of the service on one database, behind the proxy of docker-compose.yml, which asks each of them in turn."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import yaml

from tests.house.source import ROOT
from tests.needing import PATH, need
from tests.prestarted import Process, started

PROXY = "haproxy"
SERVICE = "from runpy import run_module\nrun_module('service', run_name='__main__', alter_sys=True)"
"""What `python -m service` does, for processes that do something first."""
READY_SECONDS = 180.0
"""Longest wait for a replica to answer, and for the proxy to see it."""


def _after(first: str, words: Sequence[str], own: Mapping[str, str]) -> subprocess.Popen[str]:
    """A service that runs some statements first."""
    command = [sys.executable, "-c", f"{first}\n{SERVICE}", *words]
    return subprocess.Popen(command, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True)


class Replica:
    """One process of the service."""

    def __init__(self, url: str, settings: Mapping[str, str], port: int = 0, first: str = "") -> None:
        own = {"TRAINCOST_DATABASE_URL": url, "PYTHONPATH": str(ROOT), **settings}
        words = ["serve", "--port", str(port), "--no-worker"]
        self.process: Process = (
            _after(first, words, own) if first else started(["service", *words], None, {**os.environ, **own})
        )
        said = (re.search(r"http://([\d.]+:\d+)", line) for line in self.process.stdout or ())
        found = next((match for match in said if match), None)
        assert found, "the replica ended before it said its address"
        self.address = found[1]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def stop(self) -> None:
        """Tell it to end, and wait until it has."""
        self.process.terminate()
        self.process.communicate(timeout=60)


@contextmanager
def replicas(
    url: str, count: int, settings: Mapping[str, str] | None = None, first: str = ""
) -> Iterator[list[Replica]]:
    """Replicas on a database, each after some statements of its own; who takes one out puts its successor in."""
    running: list[Replica] = []
    try:
        for _ in range(count):
            running.append(Replica(url, settings or {}, first=first))  # noqa: PERF401 - those that started are ended in any case
        yield running
    finally:
        for one in running:
            one.process.terminate()
        for one in running:
            one.process.communicate(timeout=60)


def program() -> str:
    """The proxy's program; without it tests are skipped, or fail where nothing may be skipped."""
    need(PROXY)
    return str(shutil.which(PROXY, path=PATH))


def configuration(bind: str, addresses: Sequence[str]) -> str:
    """The proxy's configuration in docker-compose.yml, for these replicas in the place of containers."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    text = str(compose["configs"]["proxy"]["content"])
    servers = "\n".join(f"    server replica{place} {one}" for place, one in enumerate(addresses))
    for found, instead in (
        (r"^resolvers containers\n(?:    .*\n)+", ""),
        (r"^    bind .*$", f"    bind {bind}"),
        (r"^    server-template .*$", servers),
    ):
        text, count = re.subn(found, instead, text, flags=re.MULTILINE)
        assert count == 1, found
    return text


@contextmanager
def proxied(addresses: Sequence[str]) -> Iterator[str]:
    """Host and port of the proxy, once it sees every replica."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traincost-proxy-")))
        file, states = folder / "haproxy.cfg", folder / "states"
        text = configuration(f"fd@{listener.fileno()}", addresses)
        text = text.replace("global\n", f"global\n    maxconn 4000\n    stats socket {states}\n", 1)
        file.write_text(text, encoding="utf-8")
        process = stack.enter_context(
            subprocess.Popen(
                [program(), "-db", "-f", str(file)],
                pass_fds=[listener.fileno()],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        stack.callback(process.terminate)
        await_servers(states, len(addresses))
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def await_servers(states: Path, count: int) -> None:
    """Wait until the proxy finds so many replicas ready."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        if _ready(states) == count:
            return
        time.sleep(0.05)
    raise AssertionError(f"the proxy does not find {count} replicas ready")


def _ready(states: Path) -> int:
    """Replicas that passed a check of the proxy."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(states))
            line.sendall(b"show stat\n")
            text = b"".join(iter(lambda: line.recv(65536), b"")).decode()
    except OSError:
        return 0
    header, *rows = [one.split(",") for one in text.lstrip("# ").splitlines() if one]
    named = [dict(zip(header, row, strict=False)) for row in rows]
    return sum(
        row["svname"].startswith("replica") and row["status"] == "UP" and row["check_status"] == "L7OK" for row in named
    )


def is_ready(address: str) -> bool:
    """Whether a replica takes requests."""
    try:
        return httpx.get(f"http://{address}/readyz", timeout=2).status_code == 200
    except httpx.TransportError:
        return False
