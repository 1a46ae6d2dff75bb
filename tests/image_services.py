"""A container of an image as docker-compose.yml would start it: its command, its user, nothing to write but volumes."""

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.containers import arguments
from tests.image_builds import Image, copy_root, inside, words_of
from tests.image_runs import Container, Running

READY_SECONDS = 60.0
ADDRESS = "http://127.0.0.1:8000"


def hardened(stage: str, image: Image, network: str, folder: Path, environment: Mapping[str, str]) -> Container:
    """A container that may write into its volumes and into memory alone."""
    volumes = {}
    for place in arguments("VOLUME", stage):
        volumes[place] = folder / place.strip("/").replace("/", "-")
        if not volumes[place].exists():
            copy_root(inside(image.root, place), volumes[place])
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost api\n", encoding="ascii")
    return Container(
        root=image.root,
        user=image.user,
        folder=image.folder,
        environment={**image.environment, **environment},
        volumes=volumes,
        read={"/etc/hosts": hosts},
        scratch=("/tmp",),  # noqa: S108 - inside the container
        is_read_only=True,
        network=network,
    )


def command(stage: str) -> list[str]:
    """What containers of a stage run."""
    return words_of(arguments("CMD", stage)[-1])


def await_healthy(running: Running) -> float:
    """Ask the image's own health check until it is content; the seconds that it took."""
    (check,) = arguments("HEALTHCHECK")
    started = time.monotonic()
    words = words_of(check[check.index("[") :])
    while True:
        if running.first and running.run(words).returncode == 0:
            return time.monotonic() - started
        assert time.monotonic() < started + READY_SECONDS, f"not healthy within {READY_SECONDS:g} s"
        time.sleep(0.1)


def ask(network: str, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, bytes]:
    """Send a request over a container's network; status and content of the answer."""
    given = ["--header", f"Authorization: Bearer {key}"] if key else []
    given += [] if body is None else ["--header", "Content-Type: application/json", "--data-binary", "@-"]
    request = ["curl", "--silent", "--max-time", "60", "--request", method, *given, f"{ADDRESS}{path}"]
    done = subprocess.run(
        ["nsenter", f"--net={network}", *request, "--write-out", "\n%{http_code}"],
        input=b"" if body is None else json.dumps(body).encode(),
        capture_output=True,
        check=False,
    )
    content, _, status = done.stdout.rpartition(b"\n")
    return int(status or 0), content


def rights(running: Running) -> dict[str, str]:
    """Who the first process is and what it may do, as the kernel says."""
    lines = running.run(["cat", "/proc/1/status"]).stdout.splitlines()
    return {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in lines) if rest.split()}


def cannot_write(running: Running) -> bool:
    """Whether the root file system refuses a new file, to whoever asks."""
    said = running.run(["sh", "-c", "touch /new /usr/local/new /tmp/new; test -e /tmp/new && echo scratch"])
    return said.stderr.count("Read-only file system") == 2 and said.stdout == "scratch\n"


def lacks(running: Running, *modules: str) -> bool:
    """Whether the image's Python knows none of these modules."""
    code = f"from importlib.util import find_spec; raise SystemExit(any(find_spec(one) for one in {modules!r}))"
    return running.run(["python3", "-c", code]).returncode == 0
