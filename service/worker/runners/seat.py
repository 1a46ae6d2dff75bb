"""What happens on one node of a cluster for a task? Its ranks run as processes under wardens, and end with this one."""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.worker.folders import job_folder, remove_abandoned
from service.worker.runners.local import LocalRunner, LocalRunning
from service.worker.running import RECORD

NODE = "TRAINCOST_NODE"
"""Variable that tells a process on which node of the cluster it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one node has to do of a task."""

    task: Mapping[str, Any]
    """The task, as JSON."""
    module: str
    """What carries it out."""
    ranks: Sequence[int]
    """Ranks that run here; empty where the process on this node starts all of them itself."""
    meeting: tuple[str, int] | None = None
    """Address and port where ranks of several nodes find each other; None where all are here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How far a node is."""

    record: dict[str, Any] | None
    """What came of its share: the record of the first rank, or of one that failed; None while it runs."""
    progress: dict[str, Any]
    """How far its first rank is."""
    files: Mapping[str, bytes]
    """Files that the record names."""


class Seat:
    """A node's share of a task. It ends with its process, and everything that it started ends with it.

    Args:
        node: what the cluster calls the node
    """

    def __init__(self, node: str = "") -> None:
        self._node = node
        remove_abandoned()  # of processes on this node that were made to end
        self._held = ExitStack()
        self._folder = self._held.enter_context(job_folder())
        self._running: dict[int, LocalRunning] = {}

    def port(self) -> int:
        """A port of this node that nobody listens on.

        Returns:
            its number
        """
        with socket.socket() as one:
            one.bind(("", 0))
            number: int = one.getsockname()[1]
        return number

    def start(self, share: Share) -> None:
        """Start what this node has to do.

        Args:
            share: the ranks that run here
        """
        found = os.pathsep.join(filter(None, sys.path))  # what this process was given to import from
        for place, rank in enumerate(share.ranks or (0,)):
            folder = self._folder / f"{rank}" / "work"
            folder.mkdir(parents=True)
            meeting = _together(share, rank, place) if share.ranks else {}
            variables = {"PYTHONPATH": found, NODE: self._node, **meeting}
            self._running[rank] = LocalRunner(variables).start(share.task, folder, share.module)

    def look(self) -> Look:
        """How far it is.

        Returns:
            its record once all ranks here have ended, or one has failed
        """
        told = {rank: self._record(rank, running) for rank, running in self._running.items()}
        progress = next(iter(self._running.values())).progress()
        failed = [record for record in told.values() if record is not None and record["status"] != "succeeded"]
        if failed:
            return Look(record=failed[0], progress=progress, files={})
        if None in told.values():
            return Look(record=None, progress=progress, files={})
        first = min(told)
        record = told[first]
        return Look(record=record, progress=progress, files=self._files(first, record or {}))

    def end(self) -> None:
        """End everything that was started here; returns when that is gone."""
        for running in self._running.values():
            running.kill()
        self._held.close()

    def _record(self, rank: int, running: LocalRunning) -> dict[str, Any] | None:
        """The record of a rank; those behind the first leave theirs under a name of their own."""
        record = running.poll()
        own = self._work(rank) / f"rank-{rank}.json"
        if record is None or not rank or (self._work(rank) / RECORD).is_file() or not own.is_file():
            return record
        found: dict[str, Any] = json.loads(own.read_text(encoding="utf-8"))
        return found

    def _files(self, rank: int, record: Mapping[str, Any]) -> dict[str, bytes]:
        names = (record.get("summary") or {}).get("files", ())
        paths = {name: self._work(rank) / name for name in names}
        return {
            name: path.read_bytes()
            for name, path in paths.items()
            if path.parent == self._work(rank) and path.is_file()
        }

    def _work(self, rank: int) -> Path:
        return self._folder / f"{rank}" / "work"


def _together(share: Share, rank: int, place: int) -> dict[str, str]:
    """What a rank is told so that it finds the others; the variables are torchrun's."""
    address, port = share.meeting or ("127.0.0.1", 0)
    told = {
        "RANK": rank, "LOCAL_RANK": place, "WORLD_SIZE": share.task["ranks"], "LOCAL_WORLD_SIZE": len(share.ranks),
        "MASTER_ADDR": address, "MASTER_PORT": port,
    }  # fmt: skip
    return {name: str(value) for name, value in told.items()}
