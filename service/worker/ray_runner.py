"""The runner of a Ray cluster: measurements under a supervisor on their nodes, and parts of sweeps as tasks of Ray."""

import importlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from threading import Event, Lock, Thread
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from service.errors import StartupError
from service.worker.devices import VISIBLE_GPUS, can_sweep, counted, gpus_here
from service.worker.probing import CannotRun
from service.worker.ray_nodes import NodeRunner, NodeState, Placement, Share, common_labels, nodes_of, placement_of
from service.worker.runners import Running, Task, job_folder, remove_abandoned

POLL_SECONDS = 0.1
"""Period of checks of running tasks. Source: a choice."""
TRIES = 2
"""Starts of a task whose node dies. Source: a choice; a task that kills two nodes would kill a third."""
START_SECONDS = 120.0
"""Longest wait for the processes of a placed task to start, and to end. Source: a choice."""

WAITING: Mapping[str, Any] = {"note": "waiting for a place on the cluster"}

log = logging.getLogger(__name__)


class Stopped(Exception):
    """The task was cancelled."""


class RayProbe:
    """A measurement on a cluster."""

    def __init__(self, task: Task, kind: str | None) -> None:
        self._task, self._kind = task, kind
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
        """Start of its processes on the current nodes; None unless they run."""
        return self._began_seconds

    def progress(self) -> dict[str, Any]:
        return self._progress

    def kill(self) -> None:
        """End it on every node."""
        self._stop.set()
        self._thread.join(START_SECONDS)

    def _run(self) -> None:
        try:
            record = self._first_record()
        except Stopped:
            return
        except Exception as error:  # the job reports any error
            log.exception("task %s", self._task.task.get("probe"))
            record = self._task.failed(f"{type(error).__name__}: {' '.join(str(error).split())}")
        self._record = record

    def _first_record(self) -> dict[str, Any]:
        for number in range(1, TRIES + 1):
            try:
                placement = placement_of(nodes_of(ray.nodes()), self._kind, int(self._task.task.get("ranks", 1)))
                return self._try_once(placement)
            except CannotRun as error:
                return self._task.failed(str(error), "skipped")
            except RayActorError:
                log.warning("a node died under the task %s, try %d of %d", self._task.task.get("probe"), number, TRIES)
                self._progress = {"note": "its node died; it is run again"}
        return self._task.failed(f"its node died, {TRIES} times: look at the log of the cluster")

    def _try_once(self, placement: Placement) -> dict[str, Any]:
        group = placement_group([dict(bundle) for bundle in placement.bundles], strategy=placement.strategy)
        actors: list[Any] = []
        try:
            self._wait_until(lambda: bool(group.wait(timeout_seconds=POLL_SECONDS)))
            actors = [_node_actor(group, place, bundle) for place, bundle in enumerate(placement.bundles)]
            several = len(actors) > 1
            meeting = ray.get(actors[0].meeting_place.remote(), timeout=START_SECONDS) if several else None
            shares = [Share(task=self._task, ranks=own, meeting=meeting) for own in placement.ranks]
            starts = [actor.start.remote(share) for actor, share in zip(actors, shares, strict=True)]
            ray.get(starts, timeout=START_SECONDS)
            self._began_seconds = time.monotonic()
            state = self._wait_for_record(actors)
            for name, content in state.files.items():
                (self._task.folder / name).write_bytes(content)
            return state.record or {}
        finally:
            self._began_seconds = None
            _end_actors(actors, group)

    def _wait_for_record(self, actors: Sequence[Any]) -> NodeState:
        """The record of the first node once all have ended, or of the first that failed."""
        while True:
            states: list[NodeState] = ray.get([actor.state.remote() for actor in actors], timeout=START_SECONDS)
            self._progress = states[0].progress or self._progress
            failed = [one for one in states if one.record is not None and one.record["status"] != "succeeded"]
            if failed:
                return failed[0]
            if all(one.record is not None for one in states):
                return states[0]
            self._wait_until(lambda: True)
            time.sleep(POLL_SECONDS)

    def _wait_until(self, is_ready: Callable[[], bool]) -> None:
        while not is_ready():
            if self._stop.is_set():
                raise Stopped
        if self._stop.is_set():
            raise Stopped


@ray.remote
class _NodeActor(NodeRunner):
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


def _end_actors(actors: Sequence[Any], group: PlacementGroup) -> None:
    ends = [actor.end.remote() for actor in actors]
    for end in ends:
        try:
            ray.get(end, timeout=START_SECONDS)
        except (RayError, GetTimeoutError):  # its node is gone, or does not answer
            continue
    for actor in actors:
        ray.kill(actor)
    remove_placement_group(group)


RERUNS = 3
"""Reruns of a task whose node or process dies. Source: a choice."""
MOST_STORED = 8
"""Inputs that stay in the cluster for the next task. Source: a choice; some megabytes each."""
END_SECONDS = 5.0
"""Time of a cancelled task to end before it is killed. Source: a choice."""


class StoredInputs:
    """Inputs of tasks, stored in the cluster once for all of them."""

    def __init__(self) -> None:
        self._references: dict[str, Any] = {}
        self._lock = Lock()

    def of(self, content: Mapping[str, bytes]) -> Any:
        """A reference to the input files of a task."""
        parts = (name.encode() + b"\0" + sha256(one).digest() for name, one in sorted(content.items()))
        digest = sha256(b"".join(parts)).hexdigest()
        with self._lock:
            if digest not in self._references:
                while len(self._references) >= MOST_STORED:
                    del self._references[next(iter(self._references))]
                self._references[digest] = ray.put(dict(content))
            return self._references[digest]


class RayShard:
    """A part of a sweep on a cluster."""

    def __init__(self, task: Task, inputs: StoredInputs) -> None:
        files = {path.name: path.read_bytes() for path in task.folder.iterdir() if path.is_file()}
        self._folder, self._began_seconds = task.folder, time.monotonic()
        remote = ray.remote(_run_task).options(num_cpus=1, max_retries=RERUNS)
        self._result = remote.remote(task.module, dict(task.task), inputs.of(files))
        self._record: dict[str, Any] | None = None
        self._is_killed = False

    def poll(self) -> dict[str, Any] | None:
        """The record; None for a killed task, even if it ended before."""
        if self._record is None and not self._is_killed and ray.wait([self._result], timeout=0)[0]:
            try:
                self._record, files = ray.get(self._result)
            except RayError as error:
                reason = " ".join(str(error).split())
                self._record, files = {"status": "failed", "reason": reason}, {}
            for name, content in files.items():
                (self._folder / name).write_bytes(content)
        return self._record

    def began_seconds(self) -> float | None:
        """Its submission to the cluster; Ray does not report when a processor starts it."""
        return self._began_seconds

    def progress(self) -> dict[str, Any]:
        """Empty: a part takes seconds."""
        return {}

    def kill(self) -> None:
        if self._record is not None:
            return
        self._is_killed = True
        for force in (False, True):  # without force first, so that the task removes its files
            ray.cancel(self._result, force=force)
            if ray.wait([self._result], timeout=END_SECONDS)[0]:
                return


def _run_task(module: str, task: dict[str, Any], files: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
    remove_abandoned()  # folders of killed processes on this node
    with job_folder() as folder:
        for file, content in files.items():
            (folder / file).write_bytes(content)
        record: dict[str, Any] = importlib.import_module(module).run_task(task, folder)
        left = [path for path in folder.iterdir() if path.name not in files and path.is_file()]
        return record, {path.name: path.read_bytes() for path in left}


CAPABILITIES_SECONDS = 180.0
"""Longest wait for a node's capabilities. Source: a choice; torch loads in a minute from a cold disk."""
UPLOADING = 2
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
        self._inputs = StoredInputs()
        self._lock = Lock()

    def capabilities(self) -> dict[str, Any]:
        """Capabilities of all nodes together; each kind of GPUs is read on one of its nodes."""
        nodes = nodes_of(ray.nodes())
        reports: dict[str, dict[str, Any]] = {}
        for kind, node in {node.kind: node for node in nodes}.items():
            affinity = NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
            remote = ray.remote(max_calls=1)(_capabilities_here).options(num_cpus=0, scheduling_strategy=affinity)
            reports[kind] = ray.get(remote.remote(), timeout=CAPABILITIES_SECONDS)
        counts: Counter[str] = Counter()
        for node in nodes:
            counts[node.kind] += node.gpus
        devices: dict[str, dict[str, Any]] = {}
        for kind, report in reports.items():
            if counts[kind]:  # named as the driver reports them, or else as Ray does
                one = next(iter(report["devices"]), {"name": kind or "GPU", "memory_bytes": None})
                devices[kind] = {"name": one["name"], "count": counts[kind], "memory_bytes": one["memory_bytes"]}
        with self._lock:
            self._kinds = {device["name"]: kind for kind, device in devices.items()}
        return {
            "devices": list(devices.values()),
            "cpu_threads": sum(node.cpus for node in nodes),
            "measures": all(one["measures"] for one in reports.values()),
            "sweeps": all(one["sweeps"] for one in reports.values()),
            "labels": common_labels(nodes),
            "runner": "ray",
            "nodes": len(nodes),
        }

    def slots(self) -> int:
        """Useful number of parallel jobs: each processor's, and some that are being uploaded."""
        return sum(node.cpus for node in nodes_of(ray.nodes())) + UPLOADING

    def lacking(self) -> str | None:
        """None: each node reports what it lacks."""
        return None

    def start(self, task: Task) -> Running:
        """Start a process as soon as there is room."""
        if "probe" not in task.task:
            return RayShard(task, self._inputs)
        with self._lock:
            kind = next(iter(self._kinds.values()), None) if task.device is None else self._kinds.get(task.device)
        return RayProbe(task, kind)

    def close(self) -> None:
        """Disconnect from the cluster, which ends everything that this worker started there."""
        ray.shutdown()


def _capabilities_here() -> dict[str, Any]:
    """The capabilities of this node, read in a process that is not reused."""
    os.environ.pop(VISIBLE_GPUS, None)  # Ray hides GPUs that a task did not request; none is requested to count them
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    installed = {"measures": find_spec("torch") is not None, "sweeps": can_sweep()}
    return {"devices": counted(gpus_here()), **installed}
