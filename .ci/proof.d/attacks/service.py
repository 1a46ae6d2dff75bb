"""A service under attack: started from any source tree, its memory capped, reached over HTTP alone."""

import json
import os
import re
import resource
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

HttpError = httpx.HTTPError
READY_SECONDS = 180.0
ADDRESS_SPACE_BYTES = 4 << 30
"""Cap on the address space of each process of the service, so that no attack harms this machine."""
ADMISSION_TOKEN = "attack-webhook-token"  # noqa: S105 - nothing real answers to it

QUESTION: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "micro_batch": 1, "global_batch": 128, "training_tokens": 2e11},
    "layout": {"tensor": 2},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
    "price": {"usd_per_gpu_hour": 2.5},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is attacked: a source tree and the Python that runs it."""

    source: Path
    python: Path


_CERTIFICATES = ssl.create_default_context()
"""Read once: sixteen clients that read them at the same time keep both cores busy, and delay what is measured."""


class Caller:
    """The holder of one key, or of none."""

    def __init__(self, address: str, key: str = "", timeout: float = 60.0) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.key = key
        self.http = httpx.Client(base_url=address, headers=headers, timeout=timeout, verify=_CERTIFICATES)

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request; a connection that the service closed while it was idle is opened again."""
        try:
            return self.http.request(method, path, **request)
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return self.http.request(method, path, **request)

    def get(self, path: str, **params: Any) -> httpx.Response:
        """Send a GET request."""
        return self.ask("GET", path, params=params or None)

    def post(self, path: str, body: Any = None, **request: Any) -> httpx.Response:
        """Send a POST request with a JSON body, or none."""
        return self.ask("POST", path, **({} if body is None else {"json": body}), **request)

    def made(self, path: str, body: Any = None, **request: Any) -> Any:
        """The answer to a POST request that has to succeed."""
        answer = self.post(path, body, **request)
        if answer.status_code >= 300:
            raise RuntimeError(f"POST {path} was answered {answer.status_code}: {answer.text[:300]}")
        return answer.json()


@dataclass(slots=True)
class Cost:
    """What an attack took of the processes of the service."""

    before: dict[int, int] = field(default_factory=dict)
    """Resident bytes of each process before it."""
    growth_bytes: int = 0
    """Peak resident bytes above that."""
    seconds: float = 0.0
    """Processor time."""


class Service:
    """Processes of the service on one database."""

    def __init__(self, target: Target, folder: Path, **settings: str) -> None:
        self.target, self.folder = target, folder
        self.url = settings.pop("TRAINCOST_DATABASE_URL", f"sqlite:///{folder / 'traincost.db'}")
        self.settings = {
            "TRAINCOST_DATABASE_URL": self.url,
            "TRAINCOST_ADMISSION_TOKEN": ADMISSION_TOKEN,
            "TRAINCOST_REQUESTS_PER_MINUTE": "0",
            **settings,
        }
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self._log = folder / "service.log"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the service, without what this process was given for itself."""
        own = {name: text for name, text in os.environ.items() if name != "PYTHONPATH" and "TRAINCOST" not in name}
        return {**own, **self.settings}

    def command(self, *words: str) -> str:
        """The output of one command of the command line."""
        made = subprocess.run(
            [self.target.python, "-m", "service", *words],
            cwd=self.target.source, env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"{' '.join(words)}: {made.stderr[-500:]}")
        return made.stdout.strip()

    def key(self, owner: str, *scopes: str, options: Sequence[str] = ()) -> str:
        """A new key."""
        words = [word for scope in scopes for word in ("--scope", scope)]
        return self.command(
            "keys", "create", "--name", f"{owner} {'+'.join(scopes)}", "--owner", owner, *words, *options
        )

    def caller(self, owner: str, *scopes: str, options: Sequence[str] = ()) -> Caller:
        """The holder of a new key; a running service hears of it within a second or two."""
        key = self.key(owner, *scopes, options=options)
        made = Caller(self.address, key)
        end = time.monotonic() + 10
        while self.address and made.get("/v1/models/none").status_code == 401 and time.monotonic() < end:
            time.sleep(0.1)
        return made

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [self.target.python, "-m", "service", "serve", "--port", "0", "--no-worker"],
                cwd=self.target.source, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
        address = None
        for line in self.process.stdout or ():
            if address := re.search(r"http://[\d.]+:\d+", line):
                break
        if not address:
            raise RuntimeError(f"the service did not start: {self._log.read_text()[-800:]}")
        self.address = address[0]
        end = time.monotonic() + READY_SECONDS
        while not self.answers() and time.monotonic() < end:
            time.sleep(0.1)

    def answers(self, seconds: float = 2.0) -> bool:
        """Whether the service answers at once."""
        try:
            return httpx.get(f"{self.address}/healthz", timeout=seconds).status_code == 200
        except HttpError:
            return False

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop every process of the service, by force if need be."""
        if self.process is None:
            return
        self.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=15)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def revive(self, *, always: bool = False) -> bool:
        """Start the service anew if it does not answer, or always; whether it did not answer."""
        answers = self.process is not None and self.process.poll() is None and self.answers(10.0)
        if answers and not always:
            return False
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.start()
        return not answers

    @contextmanager
    def cost(self) -> Iterator[Cost]:
        """Measure what the processes take beyond what they held before."""
        found, root = Cost(), self.process.pid if self.process else 0
        for pid in tree(root):
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
                found.before[pid] = status_bytes(pid, "VmRSS")
        before = processor_seconds(root)
        try:
            yield found
        finally:
            found.seconds = processor_seconds(root) - before
            for pid in tree(root):
                with suppress(OSError):
                    found.growth_bytes += max(0, status_bytes(pid, "VmHWM") - found.before.get(pid, 0))

    @property
    def log(self) -> str:
        """What the service wrote so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")


def tree(pid: int) -> Sequence[int]:
    """A process and all below it."""
    found, waiting = [], [pid] if pid else []
    while waiting:
        one = waiting.pop()
        found.append(one)
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def processor_seconds(root: int) -> float:
    """Processor time of a process and all below it, those that ended too [second]."""
    ticks = 0
    for pid in tree(root):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def status_bytes(pid: int, name: str) -> int:
    """A figure of /proc/PID/status; 0 where it has none."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return 0


@contextmanager
def serving(target: Target, **settings: str) -> Iterator[Service]:
    """A service with a database of its own; keys are made by its user."""
    with TemporaryDirectory(prefix="traincost-attack-") as name:
        service = Service(target, Path(name), **settings)
        service.key("root", "admin")  # from the first key on, every caller needs one
        try:
            service.start()
            yield service
        finally:
            service.stop()


class Beside:
    """A caller that asks POST /v1/check again and again while others attack."""

    def __init__(self, caller: Caller, pause_seconds: float = 0.02) -> None:
        self._caller, self._pause = caller, pause_seconds
        self._ended = threading.Event()
        self.seconds: list[float] = []
        self.faults: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Beside":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def mark(self) -> int:
        """Number of checks so far."""
        return len(self.seconds)

    def _run(self) -> None:
        body = json.dumps(QUESTION).encode()
        headers = {"content-type": "application/json"}
        while not self._ended.is_set():
            started = time.monotonic()
            try:
                answer = self._caller.ask("POST", "/v1/check", content=body, headers=headers)
                if answer.status_code != 200:
                    self.faults.append(f"check answered {answer.status_code}")
            except HttpError as error:
                self.faults.append(f"check had no answer: {error!r}")
                self._ended.wait(0.5)
            self.seconds.append(time.monotonic() - started)
            self._ended.wait(self._pause)


def percentile(values: Sequence[float], fraction: float) -> float:
    """A percentile; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0


def changed(body: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    """A body with other parts."""
    return {**body, **parts}
