"""A Ray cluster of several nodes in one process tree, with GPUs that nobody has."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
NICENESS = "RAY_worker_niceness"
"""Ray has its processes stand back for all others of a machine unless it is told otherwise: figures would tell that."""

STORE_BYTES = 100 << 20
"""Memory of a node's objects: Ray's least is 75 MiB."""


class Cluster:
    """A head without GPUs, and nodes with some."""

    def __init__(self, cpus: int) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        os.environ[NICENESS] = "0"
        head = {"num_cpus": cpus, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        self._cluster = RayCluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address

    def add(self, kinds: Sequence[tuple[str, int, int]]) -> list[Any]:
        """Nodes of a kind with so many GPUs and processors each."""
        nodes = [self._add(*one) for one in kinds]
        self._cluster.wait_for_nodes()
        return nodes

    def _add(self, kind: str, gpus: int, cpus: int) -> Any:
        told = {"num_gpus": gpus, "resources": {f"accelerator_type:{kind}": 1}} if gpus else {}
        return self._cluster.add_node(wait=False, num_cpus=cpus, object_store_memory=STORE_BYTES, **told)

    def kill(self, node: Any) -> None:
        """End a node at once, as a power cut does."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """End everything."""
        self._cluster.shutdown()


@contextmanager
def cluster(cpus: int = 1) -> Iterator[Cluster]:
    """A cluster for as long as it is needed."""
    made = Cluster(cpus)
    try:
        yield made
    finally:
        made.close()
