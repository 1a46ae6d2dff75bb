"""The supervisor: a small process that ends everything that a measurement started.

    python -m service.worker.supervisor COMMAND...

It starts the command in a new session, and becomes the parent of orphaned descendants. Only the worker holds its
standard input open: when that closes, the supervisor ends the command and all descendants. On systems other than Linux,
which do not list descendants, it ends the session of the command.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

STARTED_BY = "TRAINCOST_STARTED_BY"
"""Variable with the id of the process that started a measurement; the measurement ends with it."""

STOP = b"s"
"""The worker's message to stop the command: first by SIGTERM, then by SIGKILL."""

GRACE_SECONDS = 5.0
"""Time of the command to end after SIGTERM. Source: a choice; schedulers give a job half a minute."""
GONE_SECONDS = 20.0
"""Longest wait for killed processes: one that waits for a driver ends only when the driver answers."""

_POLL_SECONDS = 0.02

_CHILD_SUBREAPER, _DIES_WITH_PARENT = 36, 1
"""PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG. Source: Linux, include/uapi/linux/prctl.h."""


def main(words: Sequence[str]) -> int:
    """Run a command, and leave nothing running that it started."""
    _control(_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the worker stops a command, over standard input
    signals, wakeup = os.pipe()  # readable whenever a child has ended
    os.set_blocking(wakeup, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    process = subprocess.Popen(  # noqa: S603 - the worker's own command
        words,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, STARTED_BY: str(os.getpid())},
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has no other thread
    )
    _watch(process, signals)
    code = _end(process)
    return code if code >= 0 else 128 - code


def _watch(process: "subprocess.Popen[bytes]", signals: int) -> None:
    deadline = float("inf")
    while process.poll() is None:
        left_seconds = deadline - time.monotonic()
        if left_seconds <= 0:
            break
        timeout_seconds = None if deadline == float("inf") else left_seconds
        ready, _, _ = select.select([0, signals], [], [], timeout_seconds)
        if signals in ready:
            os.read(signals, 1024)
        if 0 in ready:
            if os.read(0, 1024)[:1] != STOP:
                return
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            _signal_session(process, signal.SIGTERM)


def _end_with_parent() -> None:
    """Make the kernel end the command when the supervisor ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _control(_DIES_WITH_PARENT, signal.SIGKILL)


def end_with_starter() -> None:
    """Make the kernel end this process, a measurement, when its parent ends."""
    if sys.platform == "linux":
        _control(_DIES_WITH_PARENT, signal.SIGKILL)
        if os.environ.get(STARTED_BY) not in (None, str(os.getppid())):
            os.kill(os.getpid(), signal.SIGKILL)


def _control(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end(process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + GONE_SECONDS
    _signal_session(process, signal.SIGKILL)
    try:
        code = process.wait(GONE_SECONDS)
    except subprocess.TimeoutExpired:
        code = -signal.SIGKILL
    while _has_children() and time.monotonic() < deadline:
        for descendant in _descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(descendant, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    return code


def _has_children() -> bool:
    """Reap ended children. Whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _signal_session(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _descendants(pid: int) -> Iterator[int]:
    children_of: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        children_of.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    pending = [pid]
    while pending:
        children = children_of.get(pending.pop(), [])
        yield from children
        pending += children


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
