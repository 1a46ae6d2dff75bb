"""The command `traincost worker`, which needs only the standard library and httpx."""

import argparse
import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from service.errors import StartupError
from service.logs import FORMATS, LogFormat, start_log
from service.worker.claiming import Claiming, WorkerOptions
from service.worker.jobs import work_of
from service.worker.runners.local import LocalRunner
from service.worker.running import Runner, remove_abandoned
from service.worker.service_client import Address, ServiceClient

DEFAULT_URL = "http://127.0.0.1:8000"
LOCAL, RAY = "local", "ray"
"""Runners: this host, or a Ray cluster."""

WITHOUT_RAY = "the runner ray needs Ray: pip install '.[ray]' in the folder of traincost's source, or pip install ray"

HELP = "Do jobs for a service: measure what it asks for, on this machine."
MOST_SLOTS = 1024

log = logging.getLogger(__name__)


def main(words: Sequence[str]) -> int:
    """Run jobs until there is a reason to end."""
    given = _parsed(words)
    try:
        start_log(os.environ.get("TRAINCOST_LOG_LEVEL") or "info", _log_format())
        logging.getLogger("httpx").setLevel(logging.WARNING)
        asyncio.run(_worked(given))
    except StartupError as error:
        print(f"traincost: {error}", file=sys.stderr)  # noqa: T201 - a command's complaint
        return 2
    return 0


def _log_format() -> LogFormat:
    """Format of log lines; this process reads its own settings."""
    wanted = os.environ.get("TRAINCOST_LOG_FORMAT") or "text"
    found = next((known for known in FORMATS if known == wanted), None)
    if found is None:
        raise StartupError(f"TRAINCOST_LOG_FORMAT: should be {' or '.join(FORMATS)}")
    return found


async def _worked(given: argparse.Namespace) -> None:
    runner = await asyncio.to_thread(_runner, given)
    client = ServiceClient(Address(url=given.url, token=given.token or None, worker=given.name))
    habits = WorkerOptions(once=given.once, most_idle_seconds=given.max_idle)
    stopping = asyncio.Event()
    _stop_on_signal(stopping, with_parent=given.with_parent)
    try:
        await asyncio.to_thread(remove_abandoned)
        found = await asyncio.to_thread(runner.capabilities)
        capabilities = {**found, "labels": {**found.get("labels", {}), **dict(given.label)}}
        work = work_of(capabilities)
        slots = [Claiming(client, runner, work, habits, stopping) for _ in range(given.slots or runner.slots())]
        log.info("worker %s asks %s for jobs; %s", given.name, given.url, _summary(capabilities))
        async with asyncio.TaskGroup() as group:
            for slot in slots:
                group.create_task(slot.go_on(capabilities))
    except* StartupError as errors:
        raise errors.exceptions[0] from None
    finally:
        await client.close()
        await asyncio.to_thread(runner.close)


def _runner(given: argparse.Namespace) -> Runner:
    if given.runner == LOCAL:
        return LocalRunner()
    if find_spec("ray") is None:
        raise StartupError(WITHOUT_RAY)
    from service.worker.runners.ray import RayRunner

    return RayRunner(given.ray_address)


def _stop_on_signal(stopping: asyncio.Event, *, with_parent: bool) -> None:
    """Release jobs and end: at SIGTERM and SIGINT, and with the parent process where requested."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if with_parent:

        def read() -> None:
            if not os.read(sys.stdin.fileno(), 1024):
                loop.remove_reader(sys.stdin.fileno())
                stopping.set()

        loop.add_reader(sys.stdin.fileno(), read)


def _summary(capabilities: dict[str, object]) -> str:
    devices = capabilities["devices"]
    counted = [f"{one['count']} x {one['name']}" for one in devices] if isinstance(devices, list) else []
    return ", ".join(counted) or f"no GPU, {capabilities['cpu_threads']} processor threads"


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="traincost worker", description=HELP, allow_abbrev=False)
    url = os.environ.get("TRAINCOST_URL") or DEFAULT_URL
    parser.add_argument("--url", default=url, help=f"address of the service (TRAINCOST_URL, {DEFAULT_URL})")
    parser.add_argument(
        "--token", default=os.environ.get("TRAINCOST_TOKEN"),
        help="a key with the scope worker (better in TRAINCOST_TOKEN, for a command line is seen by others)",
    )  # fmt: skip
    name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    parser.add_argument("--name", default=name, help="its name (the host's, and eight digits)")
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        type=_label,
        metavar="NAME=VALUE",
        help="what jobs may ask for",
    )
    parser.add_argument("--runner", choices=(LOCAL, RAY), default=LOCAL, help="where jobs run (local)")
    parser.add_argument(
        "--ray-address", metavar="HOST:PORT", help="head of the Ray cluster (that of RAY_ADDRESS, or of this host)"
    )
    parser.add_argument(
        "--slots", type=_slots, help="jobs at the same time (1; with ray the processors of the cluster)"
    )
    parser.add_argument("--once", action="store_true", help="end after one job")
    parser.add_argument("--max-idle", type=_seconds, metavar="SECONDS", help="end after waiting this long for a job")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    return parser.parse_args(words)


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError("write a label as NAME=VALUE")
    return name, value


def _slots(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= MOST_SLOTS):
        raise argparse.ArgumentTypeError(f"between 1 and {MOST_SLOTS}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise argparse.ArgumentTypeError("a number of seconds, 0 or more")
    return seconds
