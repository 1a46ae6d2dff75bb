"""How is a measurement run on a Ray cluster? On the node or nodes that have the GPUs, and once more where one dies."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from service.worker.probing import CannotRun
from service.worker.runners.nodes import Placing, nodes_of, placing_of
from service.worker.runners.seat import Look, Seat, Share

POLL_SECONDS = 0.1
"""Between two looks at what runs. Source: a choice."""

TRIES = 2
"""How often a task is started whose node dies. Source: a choice; a task that kills two nodes would kill a third."""

START_SECONDS = 120.0
"""Longest wait for the processes of a placed task to start, and to be ended. Source: a choice."""

WAITING: Mapping[str, Any] = {"note": "waiting for a place on the cluster"}
"""What is told until it runs."""

log = logging.getLogger(__name__)


class Stopped(Exception):
    """Nobody waits for the task any more."""


class RayProbe:
    """A measurement on a cluster.

    Args:
        task: what to do, as JSON
        folder: where its files go
        module: what carries it out
        kind: kind of GPUs that it runs on; None for processors
    """

    def __init__(self, task: Mapping[str, Any], folder: Path, module: str, kind: str | None) -> None:
        self._task, self._folder, self._module, self._kind = task, folder, module, kind
        self._stop = Event()
        self._record: dict[str, Any] | None = None
        self._progress: dict[str, Any] = {**WAITING}
        self._began_seconds: float | None = None
        self._thread = Thread(target=self._run, name="ray-probe", daemon=True)
        self._thread.start()

    def poll(self) -> dict[str, Any] | None:
        """What came of it."""
        return self._record

    def began_seconds(self) -> float | None:
        """When its processes were started on the nodes that it has now."""
        return self._began_seconds

    def progress(self) -> dict[str, Any]:
        """How far it is."""
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
        except Exception as error:  # whatever it is, the job has to hear of it
            log.exception("task %s", self._task.get("probe"))
            record = self._failed(f"{type(error).__name__}: {' '.join(str(error).split())}")
        self._record = record

    def _tried(self) -> dict[str, Any]:
        """The record of the first try whose nodes all lived."""
        for number in range(1, TRIES + 1):
            try:
                placing = placing_of(nodes_of(ray.nodes()), self._kind, int(self._task.get("ranks", 1)))
                return self._once(placing)
            except CannotRun as error:
                return {**self._failed(str(error)), "status": "skipped"}
            except RayActorError:
                log.warning("a node died under the task %s, try %d of %d", self._task.get("probe"), number, TRIES)
                self._progress = {"note": "its node died; it is run again"}
        return self._failed(f"its node died, {TRIES} times: look at the log of the cluster")

    def _once(self, placing: Placing) -> dict[str, Any]:
        group = placement_group([dict(bundle) for bundle in placing.bundles], strategy=placing.strategy)
        seats: list[Any] = []
        try:
            self._wait_for(lambda: bool(group.wait(timeout_seconds=POLL_SECONDS)))
            seats = [_seat(group, place, bundle) for place, bundle in enumerate(placing.bundles)]
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

    def _watched(self, seats: Sequence[Any]) -> Look:
        """What the first node found once all are done, or the first that failed."""
        while True:
            looks: list[Look] = ray.get([seat.look.remote() for seat in seats], timeout=START_SECONDS)
            self._progress = looks[0].progress or self._progress
            failed = [look for look in looks if look.record is not None and look.record["status"] != "succeeded"]
            if failed:
                return failed[0]
            if all(look.record is not None for look in looks):
                return looks[0]
            self._wait_for(lambda: True)
            time.sleep(POLL_SECONDS)

    def _wait_for(self, there: Callable[[], bool]) -> None:
        """Wait for something, for as long as anybody waits for the task."""
        while not there():
            if self._stop.is_set():
                raise Stopped
        if self._stop.is_set():
            raise Stopped

    def _failed(self, reason: str) -> dict[str, Any]:
        return {"probe": self._task.get("probe"), "status": "failed", "reason": reason, "seconds": 0.0}


@ray.remote
class _Seat(Seat):
    """A seat that knows its node."""

    def __init__(self) -> None:
        super().__init__(ray.get_runtime_context().get_node_id())

    def meeting_place(self) -> tuple[str, int]:
        """Where ranks of several nodes find each other."""
        return ray.util.get_node_ip_address(), self.port()


def _seat(group: PlacementGroup, place: int, bundle: Mapping[str, float]) -> Any:
    """A process on the node of a bundle, which has all that the bundle holds."""
    own = {name: amount for name, amount in bundle.items() if name not in {"CPU", "GPU"}}
    strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=place)
    return _Seat.options(  # type: ignore[attr-defined]  # Ray adds it
        num_cpus=bundle["CPU"],
        num_gpus=bundle.get("GPU", 0),
        resources=own,
        scheduling_strategy=strategy,
        max_restarts=0,
    ).remote()


def _leave(seats: Sequence[Any], group: PlacementGroup) -> None:
    """End what runs on every node, and give the nodes back."""
    ends = [seat.end.remote() for seat in seats]
    for end in ends:
        try:
            ray.get(end, timeout=START_SECONDS)
        except (RayError, GetTimeoutError):  # its node is gone, or does not answer: nothing can be asked of it
            continue
    for seat in seats:
        ray.kill(seat)
    remove_placement_group(group)
