"""Clusters: a preset, a preset with changes, or a number of GPUs or nodes of one type."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from annotated_types import Interval

from service.catalogue import Catalogue, ClusterRow, RegionRow
from service.catalogue.catalogue import calibrated_gpu
from service.catalogue.indexes import Found
from service.errors import Problem, Refused, UnknownName
from service.estimator.question import Cluster, Gpu, Strict
from service.validation.problems import not_an_object
from service.validation.reading import Parsed, assumptions_of, field_names, fields_of, read_name, read_spec, with_rows

CLUSTER_FIELDS = field_names(Cluster)


@dataclass(frozen=True, slots=True)
class Machine:
    """A cluster with the facts of its GPU."""

    cluster: Cluster
    """Number and network of the GPUs."""
    gpu: Gpu
    """Specification of one GPU."""


NETWORK_KEPT = "the preset's nodes and network are kept with the other GPU; inter_node_bytes_per_s changes the network"
"""Warning where a preset's GPU is changed and its network is not."""


NodeCount = Annotated[int, Interval(ge=1, le=1 << 20)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes(Strict):
    """The size of a cluster, counted in nodes."""

    nodes: NodeCount
    """Nodes in all; gpus is nodes x gpus_per_node."""


def read_cluster(value: object, catalogue: Catalogue) -> Parsed[Machine]:
    """The cluster of a request, with its GPU."""
    if isinstance(value, str):
        found = catalogue.find_cluster(value, "cluster")
        return _with_gpu(found.row.cluster, catalogue, assumptions_of(found), found.row)
    if not isinstance(value, Mapping):
        raise Refused(not_an_object("cluster", ["preset", "nodes", *CLUSTER_FIELDS]))
    if "preset" not in value:
        return _with_gpu(_sized({}, value), catalogue, ())
    found = catalogue.find_cluster(read_name(value["preset"], "cluster.preset"), "cluster.preset")
    unchanged = (NETWORK_KEPT,) if "gpu" in value and "inter_node_bytes_per_s" not in value else ()
    return _with_gpu(
        _sized(fields_of(found.row.cluster), value), catalogue, (*assumptions_of(found), *unchanged), found.row
    )


def _sized(known: Mapping[str, Any], value: Mapping[str, Any]) -> Cluster:
    """The cluster that a request makes of what is known; its size may be a number of nodes."""
    given = {name: item for name, item in value.items() if name not in {"preset", "nodes"}}
    beside = ("preset", "nodes")
    if "nodes" not in value:
        return read_spec(Cluster, {**known, **given}, "cluster", beside=beside)
    unsized = read_spec(Cluster, {"gpus": 1, **known, **given}, "cluster", beside=beside)
    return _of_nodes(unsized, value)


def _of_nodes(cluster: Cluster, value: Mapping[str, Any]) -> Cluster:
    nodes = read_spec(Nodes, {"nodes": value["nodes"]}, "cluster").nodes
    gpus = nodes * cluster.gpus_per_node
    if "gpus" in value and gpus != cluster.gpus:
        message = f"{nodes} nodes of {cluster.gpus_per_node} GPUs are {gpus} GPUs, but gpus says {cluster.gpus}"
        fix = "leave nodes or gpus out"
        raise Refused(Problem(field="cluster.nodes", code="nodes_contradict_gpus", message=message, fix=fix))
    return read_spec(Cluster, {**fields_of(cluster), "gpus": gpus}, "cluster")


def _with_gpu(
    cluster: Cluster, catalogue: Catalogue, assumptions: tuple[str, ...], preset: ClusterRow | None = None
) -> Parsed[Machine]:
    found = catalogue.find_gpu(cluster.gpu, "cluster.gpu")
    named = cluster if cluster.gpu == found.row.slug else replace(cluster, gpu=found.row.slug)
    machine = Machine(named, calibrated_gpu(found.row.slug, catalogue))
    rates = catalogue.calibrations.get(found.row.slug)
    return with_rows(Parsed(machine, (*assumptions, *assumptions_of(found))), catalogue, preset, found.row, rates)


def with_region(cluster: Cluster, price: object, catalogue: Catalogue) -> Parsed[Cluster]:
    """The cluster with the grid and PUE of its region, where it does not set them itself."""
    if cluster.grid_region is not None:
        row = catalogue.find_region(cluster.grid_region, "cluster.grid_region").row
        return with_rows(_filled(cluster, row, ""), catalogue, row)
    found = None if cluster.grid_kg_co2e_per_kwh is not None else _of_price(price, catalogue)
    if found is None:
        return Parsed(cluster)
    return with_rows(_filled(cluster, found.row, ", the place of the price"), catalogue, found.row)


def region_of_price(price: object, catalogue: Catalogue) -> str | None:
    """The region of a price."""
    found = _of_price(price, catalogue)
    return None if found is None else found.row.slug


def _of_price(price: object, catalogue: Catalogue) -> Found[RegionRow] | None:
    """The region of a catalogue price; None where its electricity is unknown."""
    if not isinstance(price, Mapping) or not {"provider", "region"} <= price.keys():
        return None
    try:
        return catalogue.find_region(f"{price['provider']}:{price['region']}")
    except UnknownName:
        return None


def _filled(cluster: Cluster, row: RegionRow, why: str) -> Parsed[Cluster]:
    own = cluster.grid_kg_co2e_per_kwh
    assumptions = []
    if own is None:
        assumptions.append(
            f"electricity of {row.slug} ({row.name}{why}): {row.grid_kg_co2e_per_kwh:.3g} kgCO2e/kWh, as of {row.as_of}"
        )
    if cluster.pue is None and row.pue is not None:
        assumptions.append(f"pue {row.pue:g} of the operator of {row.slug}: {row.pue_source}")
    filled = replace(
        cluster,
        grid_region=row.slug,
        grid_kg_co2e_per_kwh=row.grid_kg_co2e_per_kwh if own is None else own,
        pue=cluster.pue or row.pue,
    )
    return Parsed(filled, tuple(assumptions))
