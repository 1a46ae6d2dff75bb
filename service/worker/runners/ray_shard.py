"""How is a piece of a sweep worked out on a Ray cluster? As a task of Ray's own, run again where its node dies."""

import importlib
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import ray
from ray.exceptions import RayError

from service.worker.folders import job_folder, remove_abandoned

RERUNS = 3
"""How often Ray runs a task again whose node or process dies. Source: a choice."""

MOST_SHIPPED = 8
"""Contents that are kept in the cluster for the next task. Source: a choice; some megabytes each."""

END_SECONDS = 5.0
"""How long a task that is asked to end may take before it is made to. Source: a choice."""


class Shipped:
    """What tasks read, kept in the cluster once for all of them."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._lock = Lock()

    def of(self, content: Mapping[str, bytes]) -> Any:
        """Files for a task.

        Args:
            content: the files by name

        Returns:
            a reference that a task reads them by
        """
        digest = _digest(content)
        with self._lock:
            if digest not in self._kept:
                while len(self._kept) >= MOST_SHIPPED:
                    del self._kept[next(iter(self._kept))]
                self._kept[digest] = ray.put(dict(content))
            return self._kept[digest]


class RayShard:
    """A piece of a sweep on a cluster.

    Args:
        task: what to do, as JSON
        folder: files that it needs, and where its own go
        module: what carries it out
        shipped: keeps files in the cluster
    """

    def __init__(self, task: Mapping[str, Any], folder: Path, module: str, shipped: Shipped) -> None:
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self._folder, self._began_seconds = folder, time.monotonic()
        carried_out = ray.remote(_carried_out).options(num_cpus=1, max_retries=RERUNS)
        self._found = carried_out.remote(module, dict(task), shipped.of(files))
        self._record: dict[str, Any] | None = None
        self._is_killed = False

    def poll(self) -> dict[str, Any] | None:
        """What came of it; nothing once it was killed, though it may have been done before the kill reached it."""
        if self._record is None and not self._is_killed and ray.wait([self._found], timeout=0)[0]:
            try:
                self._record, files = ray.get(self._found)
            except RayError as error:
                reason = " ".join(str(error).split())
                self._record, files = {"status": "failed", "reason": reason}, {}
            for name, content in files.items():
                (self._folder / name).write_bytes(content)
        return self._record

    def began_seconds(self) -> float | None:
        """When it was handed to the cluster, which tells nothing of when it finds a processor."""
        return self._began_seconds

    def progress(self) -> dict[str, Any]:
        """A piece takes seconds: it tells nothing meanwhile."""
        return {}

    def kill(self) -> None:
        """End it, whatever it is at."""
        if self._record is not None:
            return
        self._is_killed = True
        for force in (False, True):  # asked first, so that it removes its files itself
            ray.cancel(self._found, force=force)
            if ray.wait([self._found], timeout=END_SECONDS)[0]:
                return


def _digest(content: Mapping[str, bytes]) -> str:
    whole = sha256()
    for name, one in sorted(content.items()):
        whole.update(name.encode() + b"\0" + sha256(one).digest())
    return whole.hexdigest()


def _carried_out(
    module: str, task: dict[str, Any], files: Mapping[str, bytes]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Carry a task out in this process; its record and the files that it leaves."""
    remove_abandoned()  # of processes on this node that were made to end
    with job_folder() as folder:
        for file, content in files.items():
            (folder / file).write_bytes(content)
        record: dict[str, Any] = importlib.import_module(module).carried_out(task, folder)
        left = [path for path in folder.iterdir() if path.name not in files and path.is_file()]
        return record, {path.name: path.read_bytes() for path in left}
