"""What do files of launchers have in common: names, images, resources, and what they say of themselves?"""

from collections.abc import Callable, Mapping

from service.estimator.question import Question
from service.exports.program import Nodes, Program, nodes_of, program_of
from service.exports.said import Unsaid
from service.exports.target import Job, Written

NAME = "train"
"""Name of a job."""

IMAGE = "IMAGE"
"""Stands for the caller's image."""

YOUR_IMAGE = f"{IMAGE} stands for an image of yours that holds the training software"

_RESOURCES = {"CDNA": "amd.com/gpu", "Gaudi": "habana.ai/gaudi", "TPU": "google.com/tpu", "Xe": "gpu.intel.com/i915"}
"""Names that device plugins give accelerators on Kubernetes, by the beginning of an architecture."""


def resource_of(question: Question) -> str:
    """The name of the GPUs among the resources of a Kubernetes cluster.

    Args:
        question: the question, every default filled

    Returns:
        that of the vendor's device plugin
    """
    found = (name for family, name in _RESOURCES.items() if question.gpu.architecture.startswith(family))
    return next(found, "nvidia.com/gpu")


def written_as(write: Callable[[Job, Program, Nodes], str], *told: str) -> Callable[[Job], Written]:
    """How a launcher's target writes, whose text is all that differs.

    Args:
        write: gives the text of a file that starts a program on nodes
        told: what whoever uses the file has to know

    Returns:
        what writes, and says what it does not
    """

    def written(job: Job) -> Written:
        program, nodes = program_of(job), nodes_of(job.question)
        cluster = job.question.cluster
        less: tuple[Unsaid, ...] = ()
        if nodes.gpus_each < cluster.gpus_per_node and cluster.gpus > cluster.gpus_per_node:
            message = f"{cluster.gpus} GPUs do not fill nodes of {cluster.gpus_per_node}, and every node starts as many"
            fix = f"the file asks for {nodes.count} nodes of {nodes.gpus_each}; change them, or gpus"
            less = (Unsaid("cluster.gpus_per_node", message, fix),)
        return Written(
            content=write(job, program, nodes),
            not_expressible=(*program.not_expressible, *less),
            assumptions=(*program.assumptions, *told),
        )

    return written


def pod(job: Job, nodes: Nodes, script: str, variables: Mapping[str, str] | None = None) -> dict[str, object]:
    """A pod that runs a script on all GPUs of a node.

    Args:
        job: what is to be written
        nodes: how many, and where
        script: shell commands
        variables: further variables of its environment

    Returns:
        the specification of the pod
    """
    container: dict[str, object] = {
        "name": "pytorch",
        "image": IMAGE,
        "command": ["bash", "-c"],
        "args": [script],
        "resources": {"limits": {resource_of(job.question): nodes.gpus_each}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - the pod's, not this host's
    }
    if variables:
        container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    return {"containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
