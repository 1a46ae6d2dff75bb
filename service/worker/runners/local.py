"""How does something run on the worker's own host? In a process of its own, under a warden, ending with the worker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from service.worker.devices import can_sweep, counted, gpus_here, missing_torch, shown_alone, threads_here
from service.worker.running import PROBE_PROCESS, PROGRESS, RECORD, TASK
from service.worker.supervisor import GONE_SECONDS, GRACE_SECONDS, STOP

LOG = "log.txt"
LAST_BYTES = 2_000
"""How much of a log is told where nothing else was left. Source: a choice."""

KEPT_BACK = ("TRAINCOST_TOKEN",)
"""Variables of the worker's environment that are nobody else's business."""


class LocalRunner:
    """Runs things on this host."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = variables or {}
        self._gpus: tuple[str, ...] = ()
        """Name of each GPU, in torch's order."""

    def capabilities(self) -> dict[str, Any]:
        """What can be run here."""
        gpus = gpus_here()
        self._gpus = tuple(name for name, _ in gpus)
        return {
            "devices": counted(gpus),
            "cpu_threads": threads_here(),
            "measures": find_spec("torch") is not None,
            "sweeps": can_sweep(),
            "runner": "local",
            "nodes": 1,
        }

    def start(
        self, task: Mapping[str, Any], folder: Path, module: str = PROBE_PROCESS, device: str | None = None
    ) -> "LocalRunning":
        """Start something in a process of its own, which sees the devices of that name alone."""
        seen = shown_alone(device, self._gpus, {**os.environ, **self._variables})
        return LocalRunning(task, folder, module, {**self._variables, **seen})

    def slots(self) -> int:
        """One thing at a time: two would disturb each other."""
        return 1

    def lacking(self) -> str | None:
        """What measurements need and this host has not."""
        return missing_torch()

    def close(self) -> None:
        """There is nothing to give back."""


class LocalRunning:
    """A process under its warden."""

    def __init__(self, task: Mapping[str, Any], folder: Path, module: str, variables: Mapping[str, str]) -> None:
        self._task, self._folder, self._began_seconds = task, folder, time.monotonic()
        file = folder / TASK
        file.write_text(json.dumps(task), encoding="utf-8")
        words = (sys.executable, "-m", module, str(file), str(folder))
        environment = {**os.environ, **variables}
        for name in KEPT_BACK:
            environment.pop(name, None)
        with (folder / LOG).open("wb") as log:
            self._warden = subprocess.Popen(  # noqa: S603 - the worker's own command
                (sys.executable, "-m", "service.worker.supervisor", *words),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )

    def poll(self) -> dict[str, Any] | None:
        """What came of it."""
        code = self._warden.poll()
        if code is None:
            return None
        self._let_go()
        try:
            text = (self._folder / RECORD).read_text(encoding="utf-8")
            record: dict[str, Any] = json.loads(text, parse_constant=_refuse)
        except FileNotFoundError:
            return self._failed(f"{_ended(code)}{self._last_words()}")
        except ValueError as error:
            return self._failed(f"what it measured is no JSON: {error}")
        return record

    def began_seconds(self) -> float | None:
        """When it was started: here nothing waits."""
        return self._began_seconds

    def progress(self) -> dict[str, Any]:
        """How far it is."""
        try:
            told: dict[str, Any] = json.loads((self._folder / PROGRESS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return told

    def kill(self) -> None:
        """End it and everything that it started."""
        if self._warden.poll() is None and self._warden.stdin is not None:
            with suppress(BrokenPipeError):
                self._warden.stdin.write(STOP)
                self._warden.stdin.flush()
            with suppress(subprocess.TimeoutExpired):
                self._warden.wait(GRACE_SECONDS + GONE_SECONDS)
        self._let_go()

    def _let_go(self) -> None:
        if self._warden.stdin is not None:
            with suppress(BrokenPipeError):
                self._warden.stdin.close()

    def _failed(self, reason: str) -> dict[str, Any]:
        return {"probe": self._task.get("probe"), "status": "failed", "reason": reason, "seconds": 0.0}

    def _last_words(self) -> str:
        text = (self._folder / LOG).read_bytes()[-LAST_BYTES:].decode("utf-8", errors="replace").strip()
        return f"; its last words: {text}" if text else ""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _ended(code: int) -> str:
    """How a process ended that left no record."""
    number = -code if code < 0 else code - 128
    if number <= 0:
        return f"the process ended with code {code} and left no record"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    killer = "; the system ends what takes too much memory so" if name == "SIGKILL" else ""
    return f"the process was ended by {name}{killer}"
