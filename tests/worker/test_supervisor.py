"""No process is left running, however a measurement ends."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.worker import runners
from service.worker.runners import LocalRunner, LocalRunning, Task
from tests.waiting import wait_until
from tests.worker.processes import noted, seconds_until_gone

MODULE = "tests.worker.sleeper"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who lost its parent")


def start(folder: Path, **task: Any) -> LocalRunning:
    """Something that runs, and notes its processes."""
    (folder / "job").mkdir()
    told = {"probe": "sleep", "seconds": 30.0, "pids": str(folder / "pids"), **task}
    inner = folder / "job" / "0"
    inner.mkdir()
    return LocalRunner().start(Task(task=told, folder=inner, module=MODULE))


def ended(running: LocalRunning) -> dict[str, Any]:
    wait_until(lambda: running.poll() is not None)
    return running.poll() or {}


def test_a_measurement_that_ends_takes_what_it_started_along(tmp_path: Path) -> None:
    record = ended(start(tmp_path, seconds=0.1))
    (pids,) = noted(tmp_path / "pids")
    assert record["status"] == "succeeded"
    assert record["summary"]["pid"] == pids[1]
    assert len(set(pids)) == 4
    seconds_until_gone(pids)


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_a_kill_returns_when_all_is_gone(tmp_path: Path, is_stubborn: bool) -> None:
    running = start(tmp_path, is_stubborn=is_stubborn)
    (pids,) = noted(tmp_path / "pids")
    running.kill()
    seconds_until_gone(pids, 0.0)
    reason = ended(running)["reason"]
    assert ("SIGKILL" if is_stubborn else "SIGTERM") in reason


def test_whoever_loses_its_worker_ends_with_all_it_started(tmp_path: Path) -> None:
    task = {"probe": "sleep", "seconds": 30.0, "pids": str(tmp_path / "pids"), "is_stubborn": True}
    (tmp_path / "job" / "0").mkdir(parents=True)
    program = (
        "import time\nfrom pathlib import Path\nfrom service.worker.runners import Task\n"
        "from service.worker.runners import LocalRunner\n"
        f"LocalRunner().start(Task(task={task!r}, folder=Path({str(tmp_path / 'job' / '0')!r}), module={MODULE!r}))\n"
        "time.sleep(60)"
    )
    worker = subprocess.Popen([sys.executable, "-c", program])
    (pids,) = noted(tmp_path / "pids")
    worker.kill()
    worker.wait()
    seconds_until_gone(pids)


def test_whoever_loses_its_warden_ends(tmp_path: Path) -> None:
    running = start(tmp_path)
    (pids,) = noted(tmp_path / "pids")
    warden, command, *_ = pids
    subprocess.run(["kill", "-9", str(warden)], check=True)
    seconds_until_gone([warden, command])
    assert "SIGKILL" in ended(running)["reason"]
    subprocess.run(["kill", "-9", *map(str, pids[2:])], check=True)


def test_a_measurement_that_leaves_nothing_says_how_it_ended(tmp_path: Path) -> None:
    (tmp_path / "a" / "0").mkdir(parents=True)
    broken = LocalRunner().start(Task(task={"probe": "sleep"}, folder=tmp_path / "a" / "0", module=MODULE))
    record = ended(broken)
    assert record["status"] == "failed"
    assert "code 1" in record["reason"]
    assert "KeyError: 'seconds'" in record["reason"]


def test_a_record_that_is_no_json_is_a_failure(tmp_path: Path) -> None:
    record = ended(start(tmp_path, seconds=0.0, record='{"value": NaN}'))
    assert (record["status"], record["reason"]) == ("failed", "what it measured is no JSON: NaN is no number")


def test_progress_is_told_while_it_runs(tmp_path: Path) -> None:
    running = start(tmp_path)
    noted(tmp_path / "pids")
    wait_until(lambda: bool(running.progress()))
    assert running.progress()["note"] == "sleeping"
    running.kill()


def test_the_worker_s_key_is_nobody_else_s_business(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in runners.SECRETS:
        monkeypatch.setenv(name, "secret")
    running = start(tmp_path)
    (pids,) = noted(tmp_path / "pids")
    environment = Path(f"/proc/{pids[1]}/environ").read_bytes()
    running.kill()
    assert b"secret" not in environment
    assert b"PATH=" in environment
