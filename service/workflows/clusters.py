"""Which GPUs are meant: a cluster preset, a preset with changes, or a number of GPUs or nodes of one type?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from annotated_types import Interval

from service.catalogue import Catalogue, ClusterRow
from service.catalogue.calibrated import calibrated_gpu
from service.errors import Problem, Refused
from service.estimator.gpu import Gpu
from service.estimator.noun import STRICT
from service.estimator.question import Cluster
from service.workflows.findings import not_an_object
from service.workflows.nouns import field_names, read_name, read_noun, spelled
from service.workflows.reading import Read, assumed, resting_on

CLUSTER_FIELDS = field_names(Cluster)


@dataclass(frozen=True, slots=True)
class Machine:
    """A cluster with the facts of its GPU."""

    cluster: Cluster
    """How many GPUs, and how they are wired."""
    gpu: Gpu
    """What one of them can do."""


NETWORK_KEPT = "the preset's nodes and network are kept with the other GPU; inter_node_bytes_per_s changes the network"
"""Said where a preset's GPU is changed and its network is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The size of a cluster, counted in nodes."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    nodes: Annotated[int, Interval(ge=1, le=1 << 20)]
    """Nodes in all; gpus is nodes x gpus_per_node."""


def read_cluster(value: object, catalogue: Catalogue) -> Read[Machine]:
    """The cluster that a request means, with the facts of its GPU.

    Args:
        value: preset name, {"preset": ..., "nodes": ..., changes}, or an inline Cluster, which may say nodes for gpus
        catalogue: the presets and the GPUs

    Returns:
        cluster and GPU, and what was assumed

    Raises:
        Refused: an unknown name or a wrong value
    """
    if isinstance(value, str):
        found = catalogue.find_cluster(value, "cluster")
        return _with_gpu(found.row.cluster, catalogue, assumed(found), found.row)
    if not isinstance(value, Mapping):
        raise Refused(not_an_object("cluster", ["preset", "nodes", *CLUSTER_FIELDS]))
    if "preset" not in value:
        return _with_gpu(_sized({}, value), catalogue, ())
    found = catalogue.find_cluster(read_name(value["preset"], "cluster.preset"), "cluster.preset")
    kept = (NETWORK_KEPT,) if "gpu" in value and "inter_node_bytes_per_s" not in value else ()
    return _with_gpu(_sized(spelled(found.row.cluster), value), catalogue, (*assumed(found), *kept), found.row)


def _sized(known: Mapping[str, Any], value: Mapping[str, Any]) -> Cluster:
    """The cluster that a request makes of what is known; its size may be told in nodes."""
    said = {name: item for name, item in value.items() if name not in {"preset", "nodes"}}
    beside = ("preset", "nodes")
    if "nodes" not in value:
        return read_noun(Cluster, {**known, **said}, "cluster", beside=beside)
    unsized = read_noun(Cluster, {"gpus": 1, **known, **said}, "cluster", beside=beside)
    return _of_nodes(unsized, value)


def _of_nodes(cluster: Cluster, value: Mapping[str, Any]) -> Cluster:
    nodes = read_noun(Nodes, {"nodes": value["nodes"]}, "cluster").nodes
    gpus = nodes * cluster.gpus_per_node
    if "gpus" in value and gpus != cluster.gpus:
        message = f"{nodes} nodes of {cluster.gpus_per_node} GPUs are {gpus} GPUs, but gpus says {cluster.gpus}"
        fix = "leave nodes or gpus out"
        raise Refused(Problem(field="cluster.nodes", code="nodes_contradict_gpus", message=message, fix=fix))
    return read_noun(Cluster, {**spelled(cluster), "gpus": gpus}, "cluster")


def _with_gpu(
    cluster: Cluster, catalogue: Catalogue, assumptions: tuple[str, ...], preset: ClusterRow | None = None
) -> Read[Machine]:
    found = catalogue.find_gpu(cluster.gpu, "cluster.gpu")
    machine = Machine(replace(cluster, gpu=found.row.slug), calibrated_gpu(found.row.slug, catalogue))
    rates = catalogue.calibrations.get(found.row.slug)
    return resting_on(Read(machine, (*assumptions, *assumed(found))), catalogue, preset, found.row, rates)
