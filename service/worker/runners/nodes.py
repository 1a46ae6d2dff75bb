"""What does a cluster have, and how do the ranks of a task spread over it? Facts of its nodes, as Ray tells them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from service.worker.probing import CannotRun

KIND = "accelerator_type:"
"""How the name of the resource begins by which Ray tells the kind of a node's GPUs."""

A_LITTLE = 0.001
"""How much of that resource a task asks for: a node has one of it, whatever the number of its GPUs."""

OWN_LABELS = "ray.io/"
"""How Ray's own labels of a node begin."""

Strategy = Literal["STRICT_PACK", "STRICT_SPREAD"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that is alive."""

    id: str
    cpus: int
    gpus: int
    kind: str
    """Kind of its GPUs; empty where there are none, or where nobody said."""
    labels: Mapping[str, str]
    """What its operator says of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Where the ranks of a task are to run."""

    bundles: tuple[Mapping[str, float], ...]
    """What each node has to give."""
    ranks: tuple[tuple[int, ...], ...]
    """Ranks on each node; none where a single node starts all of them itself."""
    strategy: Strategy
    """All on one node, or each bundle on another one."""


def nodes_of(told: Sequence[Mapping[str, Any]]) -> tuple[Node, ...]:
    """The nodes that are alive.

    Args:
        told: of `ray.nodes()`

    Returns:
        the nodes, those with most GPUs first
    """
    nodes = [_node(one) for one in told if one["Alive"]]
    return tuple(sorted(nodes, key=lambda node: (-node.gpus, -node.cpus, node.id)))


def _node(told: Mapping[str, Any]) -> Node:
    resources: Mapping[str, float] = told["Resources"]
    kinds = [name.removeprefix(KIND) for name in resources if name.startswith(KIND)]
    labels = {name: value for name, value in (told.get("Labels") or {}).items() if not name.startswith(OWN_LABELS)}
    gpus = int(resources.get("GPU", 0))
    return Node(
        id=told["NodeID"],
        cpus=int(resources.get("CPU", 0)),
        gpus=gpus,
        kind=kinds[0] if kinds and gpus else "",
        labels=labels,
    )


def common_labels(nodes: Sequence[Node]) -> dict[str, str]:
    """Labels that all nodes bear, so that a job which asks for them may run on any.

    Args:
        nodes: the nodes

    Returns:
        the labels

    >>> common_labels([])
    {}
    """
    shared = set.intersection(*(set(node.labels.items()) for node in nodes)) if nodes else set()
    return dict(sorted(shared))


def placing_of(nodes: Sequence[Node], kind: str | None, ranks: int) -> Placing:
    """Where the ranks of a task are to run: on one node where one has enough GPUs, else on as few as have.

    Args:
        nodes: the nodes, those with most GPUs first
        kind: kind of GPUs that it needs; None for processors alone
        ranks: how many ranks it has

    Returns:
        what each node has to give, and its ranks

    Raises:
        CannotRun: the cluster has not so many
    """
    if kind is None:
        cpus = min(ranks, max((node.cpus for node in nodes), default=0))
        if not cpus:
            raise CannotRun("no node of the cluster has a processor to give: start nodes with CPUs")
        return Placing(bundles=({"CPU": cpus},), ranks=((),), strategy="STRICT_PACK")
    sizes = _sizes([node.gpus for node in nodes if node.gpus and node.kind == kind], ranks)
    if sum(sizes) < ranks:
        raise CannotRun(f"{ranks} GPUs of kind {kind or 'unknown'} are needed, and the cluster has {sum(sizes)} now")
    own = {KIND + kind: A_LITTLE} if kind else {}
    bundles = tuple({"CPU": 1, "GPU": size, **own} for size in sizes)
    if len(sizes) == 1:
        return Placing(bundles=bundles, ranks=((),), strategy="STRICT_PACK")
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    spread = tuple(tuple(range(end - size, end)) for end, size in zip(ends, sizes, strict=True))
    return Placing(bundles=bundles, ranks=spread, strategy="STRICT_SPREAD")


def _sizes(gpus: Sequence[int], ranks: int) -> list[int]:
    """GPUs that each node gives, the largest first, until there are enough.

    >>> _sizes([4, 4, 2], 7), _sizes([4, 4], 3)
    ([4, 3], [3])
    """
    sizes: list[int] = []
    for one in gpus:
        left = ranks - sum(sizes)
        if left <= 0:
            break
        sizes.append(min(one, left))
    return sizes
