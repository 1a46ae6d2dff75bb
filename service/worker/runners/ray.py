"""How does a worker run things on a Ray cluster? Ray finds the place, by kind and number of GPUs.

A measurement is a process under a warden on its node, as on the worker's own host. A piece of a sweep is a task of
Ray's own, whose processes are used again for the next piece.
"""

import logging
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from service.errors import StartupError
from service.worker.hardware import can_sweep, devices_here
from service.worker.runners.nodes import Node, common_labels, nodes_of
from service.worker.runners.ray_probe import RayProbe
from service.worker.runners.ray_shard import RayShard, Shipped
from service.worker.running import PROBE_PROCESS, Running

ASKED_SECONDS = 180.0
"""Longest wait for a node to tell what it has. Source: a choice; torch loads in a minute from a cold disk."""

HIDDEN_BY_RAY = "CUDA_VISIBLE_DEVICES"
"""Ray hides GPUs that a task did not ask for; to count them none is asked for."""

HANDED_IN = 2
"""Jobs that are claimed or handed in while every processor works. Source: a choice."""

NAMESPACE = "traincost"


class RayRunner:
    """Runs things on a Ray cluster.

    Args:
        address: where its head is; None for the cluster of RAY_ADDRESS, or of this host

    Raises:
        StartupError: there is no such cluster
    """

    def __init__(self, address: str | None = None) -> None:
        try:
            ray.init(address=address or "auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, ValueError) as error:
            where = address or "of this host; give --ray-address, or start one with `ray start --head`"
            raise StartupError(f"there is no Ray cluster {where}: {' '.join(str(error).split())}") from None
        self._kinds: dict[str, str] = {}
        """Kind of GPUs by the name of the device, as this worker tells it."""
        self._shipped = Shipped()
        self._lock = Lock()

    def capabilities(self) -> dict[str, Any]:
        """What can be run on all nodes together; a kind of GPUs is asked for on one of its nodes."""
        nodes = nodes_of(ray.nodes())
        told = {kind: _asked(node) for kind, node in {node.kind: node for node in nodes}.items()}
        devices = {kind: self._device(kind, told[kind]["devices"], nodes) for kind in told if _has_gpus(kind, nodes)}
        with self._lock:
            self._kinds = {device["name"]: kind for kind, device in devices.items()}
        return {
            "devices": list(devices.values()),
            "cpu_threads": sum(node.cpus for node in nodes),
            "measures": all(one["measures"] for one in told.values()),
            "sweeps": all(one["sweeps"] for one in told.values()),
            "labels": common_labels(nodes),
            "runner": "ray",
            "nodes": len(nodes),
        }

    def slots(self) -> int:
        """Jobs that it makes sense to have at the same time: each processor's, and some that are handed in."""
        return sum(node.cpus for node in nodes_of(ray.nodes())) + HANDED_IN

    def lacking(self) -> str | None:
        """Nodes have what measurements need, or each says what it lacks."""
        return None

    def start(
        self, task: Mapping[str, Any], folder: Path, module: str = PROBE_PROCESS, device: str | None = None
    ) -> Running:
        """Start something where there is room for it, as soon as there is."""
        if "probe" not in task:
            return RayShard(task, folder, module, self._shipped)
        with self._lock:
            kind = next(iter(self._kinds.values()), None) if device is None else self._kinds.get(device)
        return RayProbe(task, folder, module, kind)

    def close(self) -> None:
        """Leave the cluster; what still runs for this worker ends with that."""
        ray.shutdown()

    def _device(self, kind: str, found: list[dict[str, Any]], nodes: tuple[Node, ...]) -> dict[str, Any]:
        """GPUs of one kind, by the name that their driver gives, or else Ray."""
        one = found[0] if found else {"name": kind or "GPU", "memory_bytes": None}
        count = sum(node.gpus for node in nodes if node.kind == kind)
        return {"name": one["name"], "count": count, "memory_bytes": one["memory_bytes"]}


def _has_gpus(kind: str, nodes: tuple[Node, ...]) -> bool:
    return any(node.gpus and node.kind == kind for node in nodes)


def _asked(node: Node) -> dict[str, Any]:
    """What is installed on a node, and what its driver tells."""
    on_it = NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
    asked = ray.remote(max_calls=1)(_here).options(num_cpus=0, scheduling_strategy=on_it).remote()
    found: dict[str, Any] = ray.get(asked, timeout=ASKED_SECONDS)
    return found


def _here() -> dict[str, Any]:
    """What this node has, asked in a process that is not used again."""
    os.environ.pop(HIDDEN_BY_RAY, None)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    installed = {"measures": find_spec("torch") is not None, "sweeps": can_sweep()}
    return {"devices": devices_here(), **installed}
