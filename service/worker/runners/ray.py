"""The runner of a Ray cluster. Ray finds the place, by kind and number of GPUs.

A measurement is a process under a supervisor on its node, as on the worker's own host. A part of a sweep is a task
of Ray's own, which reuses processes for the next part.
"""

import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from service.errors import StartupError
from service.worker.devices import can_sweep, devices_here
from service.worker.probing import CannotRun
from service.worker.runners import PROBE_PROCESS, Running, job_folder, remove_abandoned
from service.worker.runners.nodes import (
    Node,
    NodeRunner,
    NodeState,
    Placement,
    Share,
    common_labels,
    nodes_of,
    placement_of,
)

POLL_SECONDS = 0.1
"""Period of checks of running tasks. Source: a choice."""

TRIES = 2
"""Starts of a task whose node dies. Source: a choice; a task that kills two nodes would kill a third."""

START_SECONDS = 120.0
"""Longest wait for the processes of a placed task to start, and to end. Source: a choice."""

WAITING: Mapping[str, Any] = {"note": "waiting for a place on the cluster"}
"""Progress of a task that waits for a place."""

log = logging.getLogger(__name__)


class Stopped(Exception):
    """The task was cancelled."""


class RayProbe:
    """A measurement on a cluster."""

    def __init__(self, task: Mapping[str, Any], folder: Path, module: str, kind: str | None) -> None:
        self._task, self._folder, self._module, self._kind = task, folder, module, kind
        self._stop = Event()
        self._record: dict[str, Any] | None = None
        self._progress: dict[str, Any] = {**WAITING}
        self._began_seconds: float | None = None
        self._thread = Thread(target=self._run, name="ray-probe", daemon=True)
        self._thread.start()

    def poll(self) -> dict[str, Any] | None:
        """The record, once the measurement has ended."""
        return self._record

    def began_seconds(self) -> float | None:
        """Start of its processes on the current nodes."""
        return self._began_seconds

    def progress(self) -> dict[str, Any]:
        """The last progress report."""
        return self._progress

    def kill(self) -> None:
        """End it on every node."""
        self._stop.set()
        self._thread.join(START_SECONDS)

    def _run(self) -> None:
        try:
            record = self._tried()
        except Stopped:
            return
        except Exception as error:  # the job reports any error
            log.exception("task %s", self._task.get("probe"))
            record = self._failed(f"{type(error).__name__}: {' '.join(str(error).split())}")
        self._record = record

    def _tried(self) -> dict[str, Any]:
        """The record of the first try without a dead node."""
        for number in range(1, TRIES + 1):
            try:
                placing = placement_of(nodes_of(ray.nodes()), self._kind, int(self._task.get("ranks", 1)))
                return self._once(placing)
            except CannotRun as error:
                return {**self._failed(str(error)), "status": "skipped"}
            except RayActorError:
                log.warning("a node died under the task %s, try %d of %d", self._task.get("probe"), number, TRIES)
                self._progress = {"note": "its node died; it is run again"}
        return self._failed(f"its node died, {TRIES} times: look at the log of the cluster")

    def _once(self, placing: Placement) -> dict[str, Any]:
        group = placement_group([dict(bundle) for bundle in placing.bundles], strategy=placing.strategy)
        seats: list[Any] = []
        try:
            self._wait_for(lambda: bool(group.wait(timeout_seconds=POLL_SECONDS)))
            seats = [_node_actor(group, place, bundle) for place, bundle in enumerate(placing.bundles)]
            self._start(seats, placing.ranks)
            self._began_seconds = time.monotonic()
            found = self._watched(seats)
            for name, content in found.files.items():
                (self._folder / name).write_bytes(content)
            return found.record or {}
        finally:
            self._began_seconds = None
            _leave(seats, group)

    def _start(self, seats: Sequence[Any], ranks: Sequence[Sequence[int]]) -> None:
        meeting = None
        if len(seats) > 1:
            meeting = ray.get(seats[0].meeting_place.remote(), timeout=START_SECONDS)
        shares = [Share(task=self._task, module=self._module, ranks=own, meeting=meeting) for own in ranks]
        ray.get([seat.start.remote(share) for seat, share in zip(seats, shares, strict=True)], timeout=START_SECONDS)

    def _watched(self, seats: Sequence[Any]) -> NodeState:
        """The record of the first node once all have ended, or of the first that failed."""
        while True:
            states: list[NodeState] = ray.get([seat.look.remote() for seat in seats], timeout=START_SECONDS)
            self._progress = states[0].progress or self._progress
            failed = [look for look in states if look.record is not None and look.record["status"] != "succeeded"]
            if failed:
                return failed[0]
            if all(look.record is not None for look in states):
                return states[0]
            self._wait_for(lambda: True)
            time.sleep(POLL_SECONDS)

    def _wait_for(self, there: Callable[[], bool]) -> None:
        """Wait for a result, unless the task is cancelled."""
        while not there():
            if self._stop.is_set():
                raise Stopped
        if self._stop.is_set():
            raise Stopped

    def _failed(self, reason: str) -> dict[str, Any]:
        return {"probe": self._task.get("probe"), "status": "failed", "reason": reason, "seconds": 0.0}


@ray.remote
class _NodeActor(NodeRunner):
    """A node runner on its Ray node."""

    def __init__(self) -> None:
        super().__init__(ray.get_runtime_context().get_node_id())

    def meeting_place(self) -> tuple[str, int]:
        """Rendezvous address and port of ranks on several nodes."""
        return ray.util.get_node_ip_address(), self.port()


def _node_actor(group: PlacementGroup, place: int, bundle: Mapping[str, float]) -> Any:
    """A node runner with all resources of a bundle."""
    own = {name: amount for name, amount in bundle.items() if name not in {"CPU", "GPU"}}
    strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=place)
    return _NodeActor.options(  # type: ignore[attr-defined]  # Ray adds it
        num_cpus=bundle["CPU"],
        num_gpus=bundle.get("GPU", 0),
        resources=own,
        scheduling_strategy=strategy,
        max_restarts=0,
    ).remote()


def _leave(seats: Sequence[Any], group: PlacementGroup) -> None:
    """End the processes on every node, and release the nodes."""
    ends = [seat.end.remote() for seat in seats]
    for end in ends:
        try:
            ray.get(end, timeout=START_SECONDS)
        except (RayError, GetTimeoutError):  # its node is gone, or does not answer: nothing can be asked of it
            continue
    for seat in seats:
        ray.kill(seat)
    remove_placement_group(group)


RERUNS = 3
"""Reruns of a task whose node or process dies. Source: a choice."""

MOST_SHIPPED = 8
"""Inputs that stay in the cluster for the next task. Source: a choice; some megabytes each."""

END_SECONDS = 5.0
"""Time of a cancelled task to end before it is killed. Source: a choice."""


class StoredInputs:
    """Inputs of tasks, stored in the cluster once for all of them."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._lock = Lock()

    def of(self, content: Mapping[str, bytes]) -> Any:
        """A reference to the input files of a task."""
        digest = _digest(content)
        with self._lock:
            if digest not in self._kept:
                while len(self._kept) >= MOST_SHIPPED:
                    del self._kept[next(iter(self._kept))]
                self._kept[digest] = ray.put(dict(content))
            return self._kept[digest]


class RayShard:
    """A part of a sweep on a cluster."""

    def __init__(self, task: Mapping[str, Any], folder: Path, module: str, shipped: StoredInputs) -> None:
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self._folder, self._began_seconds = folder, time.monotonic()
        carried_out = ray.remote(_carried_out).options(num_cpus=1, max_retries=RERUNS)
        self._found = carried_out.remote(module, dict(task), shipped.of(files))
        self._record: dict[str, Any] | None = None
        self._is_killed = False

    def poll(self) -> dict[str, Any] | None:
        """The record; None once it was killed, even where it ended before."""
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
        """Its submission to the cluster; when it finds a processor is unknown."""
        return self._began_seconds

    def progress(self) -> dict[str, Any]:
        """Empty: a part takes seconds."""
        return {}

    def kill(self) -> None:
        """End it."""
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
    """Run a task in this process; its record and the files that it wrote."""
    remove_abandoned()  # of processes on this node that were made to end
    with job_folder() as folder:
        for file, content in files.items():
            (folder / file).write_bytes(content)
        record: dict[str, Any] = importlib.import_module(module).carried_out(task, folder)
        left = [path for path in folder.iterdir() if path.name not in files and path.is_file()]
        return record, {path.name: path.read_bytes() for path in left}


ASKED_SECONDS = 180.0
"""Longest wait for a node's capabilities. Source: a choice; torch loads in a minute from a cold disk."""

HIDDEN_BY_RAY = "CUDA_VISIBLE_DEVICES"
"""Variable by which Ray hides GPUs that a task did not request; none is requested to count them."""

HANDED_IN = 2
"""Jobs that are claimed or uploaded while every processor works. Source: a choice."""

NAMESPACE = "traincost"


class RayRunner:
    """Runs processes on a Ray cluster."""

    def __init__(self, address: str | None = None) -> None:
        try:
            ray.init(address=address or "auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, ValueError) as error:
            where = address or "of this host; give --ray-address, or start one with `ray start --head`"
            raise StartupError(f"there is no Ray cluster {where}: {' '.join(str(error).split())}") from None
        self._kinds: dict[str, str] = {}
        """Kind of GPUs by the name of the device that this worker reports."""
        self._shipped = StoredInputs()
        self._lock = Lock()

    def capabilities(self) -> dict[str, Any]:
        """Capabilities of all nodes together; each kind of GPUs is read on one of its nodes."""
        nodes = nodes_of(ray.nodes())
        found = {kind: _asked(node) for kind, node in {node.kind: node for node in nodes}.items()}
        devices = {kind: self._device(kind, found[kind]["devices"], nodes) for kind in found if _has_gpus(kind, nodes)}
        with self._lock:
            self._kinds = {device["name"]: kind for kind, device in devices.items()}
        return {
            "devices": list(devices.values()),
            "cpu_threads": sum(node.cpus for node in nodes),
            "measures": all(one["measures"] for one in found.values()),
            "sweeps": all(one["sweeps"] for one in found.values()),
            "labels": common_labels(nodes),
            "runner": "ray",
            "nodes": len(nodes),
        }

    def slots(self) -> int:
        """Useful number of parallel jobs: each processor's, and some that are being uploaded."""
        return sum(node.cpus for node in nodes_of(ray.nodes())) + HANDED_IN

    def lacking(self) -> str | None:
        """None: each node reports what it lacks."""
        return None

    def start(
        self, task: Mapping[str, Any], folder: Path, module: str = PROBE_PROCESS, device: str | None = None
    ) -> Running:
        """Start a process as soon as there is room."""
        if "probe" not in task:
            return RayShard(task, folder, module, self._shipped)
        with self._lock:
            kind = next(iter(self._kinds.values()), None) if device is None else self._kinds.get(device)
        return RayProbe(task, folder, module, kind)

    def close(self) -> None:
        """Disconnect from the cluster, which ends everything that this worker started there."""
        ray.shutdown()

    def _device(self, kind: str, found: list[dict[str, Any]], nodes: tuple[Node, ...]) -> dict[str, Any]:
        """GPUs of one kind, by the name of their driver, or else Ray's."""
        one = found[0] if found else {"name": kind or "GPU", "memory_bytes": None}
        count = sum(node.gpus for node in nodes if node.kind == kind)
        return {"name": one["name"], "count": count, "memory_bytes": one["memory_bytes"]}


def _has_gpus(kind: str, nodes: tuple[Node, ...]) -> bool:
    return any(node.gpus and node.kind == kind for node in nodes)


def _asked(node: Node) -> dict[str, Any]:
    """The capabilities of a node."""
    on_it = NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
    asked = ray.remote(max_calls=1)(_here).options(num_cpus=0, scheduling_strategy=on_it).remote()
    found: dict[str, Any] = ray.get(asked, timeout=ASKED_SECONDS)
    return found


def _here() -> dict[str, Any]:
    """The capabilities of this node, read in a process that is not reused."""
    os.environ.pop(HIDDEN_BY_RAY, None)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    installed = {"measures": find_spec("torch") is not None, "sweeps": can_sweep()}
    return {"devices": devices_here(), **installed}
