"""Parts that launchers share: names, images, resources, GPU names, and jobs of schedulers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.answers.exports import NotExpressed
from service.estimator.question import Question
from service.formats.program import Nodes, Program, nodes_of, program_of
from service.formats.rules import ExportedFile, ExportRequest

NAME = "train"
"""Name of a job."""

IMAGE = "IMAGE"
"""Placeholder for the caller's image."""

YOUR_IMAGE = f"{IMAGE} stands for an image of yours that holds the training software"

_RESOURCES = {"CDNA": "amd.com/gpu", "Gaudi": "habana.ai/gaudi", "TPU": "google.com/tpu", "Xe": "gpu.intel.com/i915"}
"""Kubernetes resource names of accelerators, by the start of an architecture."""


def resource_of(question: Question) -> str:
    """Kubernetes resource name of the question's GPUs."""
    found = (name for family, name in _RESOURCES.items() if question.gpu.architecture.startswith(family))
    return next(found, "nvidia.com/gpu")


def writer(
    write: Callable[[ExportRequest, Program, Nodes], str], *notes: str
) -> Callable[[ExportRequest], ExportedFile]:
    """The write function of a launcher's target, from the function that makes its text."""

    def written(request: ExportRequest) -> ExportedFile:
        program, nodes = program_of(request), nodes_of(request.question)
        cluster = request.question.cluster
        gaps: tuple[NotExpressed, ...] = ()
        if nodes.gpus_each < cluster.gpus_per_node and cluster.gpus > cluster.gpus_per_node:
            message = f"{cluster.gpus} GPUs do not fill nodes of {cluster.gpus_per_node}, and every node starts as many"
            fix = f"the file asks for {nodes.count} nodes of {nodes.gpus_each}; change them, or gpus"
            gaps = (NotExpressed(field="cluster.gpus_per_node", message=message, fix=fix),)
        return ExportedFile(
            content=write(request, program, nodes),
            not_expressible=(*program.not_expressible, *gaps),
            assumptions=(*program.assumptions, *notes),
        )

    return written


def pod(
    request: ExportRequest, nodes: Nodes, script: str, variables: Mapping[str, str] | None = None
) -> dict[str, object]:
    """A pod that runs a script on all GPUs of a node."""
    container: dict[str, object] = {
        "name": "pytorch",
        "image": IMAGE,
        "command": ["bash", "-c"],
        "args": [script],
        "resources": {"limits": {resource_of(request.question): nodes.gpus_each}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - the pod's, not this host's
    }
    if variables:
        container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    return {"containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}


_MEMORY = re.compile(r"-(\d+)gb")


_SMALLER = {"A100": 40, "V100": 16}
"""GB of the smaller GPU, in families of two sizes: the name of the larger one states its memory."""


def family_of(slug: str) -> str:
    """The family of a GPU.

    >>> family_of("h100-sxm5-80gb"), family_of("rtx-4090"), family_of("mi300x-192gb")
    ('H100', 'RTX4090', 'MI300X')
    """
    first, _, others = slug.partition("-")
    return (first + others.partition("-")[0] if first == "rtx" else first).upper()


def memory_of(slug: str) -> int | None:
    """GB of memory in a GPU's name.

    >>> memory_of("h100-sxm5-80gb"), memory_of("l40s")
    (80, None)
    """
    found = _MEMORY.search(slug)
    return int(found[1]) if found else None


def sized_name_of(slug: str) -> str:
    """The family, with its memory if that distinguishes two.

    Source: catalogues of SkyPilot 0.14.1 and of dstack 0.22.5.

    >>> sized_name_of("a100-sxm4-80gb"), sized_name_of("a100-sxm4-40gb"), sized_name_of("h100-sxm5-80gb")
    ('A100-80GB', 'A100', 'H100')
    """
    family, memory = family_of(slug), memory_of(slug)
    is_larger = family in _SMALLER and memory is not None and memory > _SMALLER[family]
    return f"{family}-{memory}GB" if is_larger else family


_GPUS = re.compile(r"(?:^|[,/:])gpu(?:[:=]([A-Za-z][\w.-]{0,79}))?[:=](\d{1,6})(?=$|[,(])")
"""GPUs in Slurm's syntax: gpu:8, gres/gpu:h100:8, gres:gpu:h100:8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A scheduler's job."""

    script: str
    """Script that it starts."""
    gpus: int
    """GPUs in all."""
    gpus_each: int
    """GPUs of a node."""
    gpu: str | None = None
    """The scheduler's name of the GPU; None if not stated."""
    time_limit_seconds: float | None = None
    """Wall time limit; None if not stated."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Parts of the question that the operator or the job's owner states."""


def gpus_in(resources: str) -> tuple[str | None, int]:
    """The GPUs in Slurm's resource syntax.

    >>> gpus_in("gres/gpu:h100:8"), gpus_in("gres:gpu:4"), gpus_in("cpu:4")
    (('h100', 8), (None, 4), (None, 0))
    """
    found = _GPUS.findall(resources)
    named = next((name for name, _ in found if name), None)
    return named, sum(int(count) for _, count in found)
