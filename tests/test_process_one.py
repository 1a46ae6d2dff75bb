"""The first process of a container ends on a signal, also during its start."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.source import ROOT
from tests.needing import need
from tests.waiting import wait_until

ALONE = ["unshare", "--pid", "--fork", "--kill-child"]
MOST_SECONDS = 15.0


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """What makes a command process 1 of a namespace of its own."""
    need("namespaces")
    return ALONE


EARLY = """
import os, signal, sys, time, types
from service.__main__ import main

def begin(*_):
    os.kill(1, signal.SIGTERM)
    time.sleep(1)
    sys.exit("still there")

sys.modules["{module}"] = types.SimpleNamespace(main=begin)
main()
"""
"""Is told to end while it imports what its command needs, which is before that could listen."""


@pytest.mark.parametrize(
    ("word", "module"), [("serve", "service.cli.application"), ("worker", "service.worker.command")]
)
def test_it_ends_while_it_starts(alone: list[str], word: str, module: str) -> None:
    command = [*alone, sys.executable, "-c", EARLY.format(module=module), word]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [["serve", "--port", "0"], ["worker", "--url", "http://127.0.0.1:9"]])
@pytest.mark.parametrize("seconds", [0.4, 3.0])
def test_it_ends_while_it_runs(alone: list[str], tmp_path: Path, words: list[str], seconds: float) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path)}
    command = [*alone, sys.executable, "-m", "service", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: _first(process.pid) != 0)
            time.sleep(seconds)
            wait_until(lambda: _listens(process.pid))
            os.kill(_first(process.pid), signal.SIGTERM)
            assert process.wait(timeout=MOST_SECONDS) == 0
        finally:
            process.kill()


def _first(process: int) -> int:
    """Process 1, as this machine counts processes; 0 where it has not begun."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    return int(children[0]) if children else 0


def _listens(process: int) -> bool:
    """Whether process 1 has asked for SIGTERM: the kernel passes over one that it has not asked for."""
    first = _first(process)
    if first == 0:
        return False
    lines = Path(f"/proc/{first}/status").read_text(encoding="ascii").splitlines()
    (caught,) = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")]
    return bool(caught >> (signal.SIGTERM - 1) & 1)
