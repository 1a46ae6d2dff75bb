"""Kubernetes: manifests of JobSet (one indexed Job, a pod for each node), PyTorchJob, TrainJob and Volcano.

Source: batch/v1 of Kubernetes 1.37; jobset.x-k8s.io/v1alpha2 and trainer.kubeflow.org/v1alpha1 of kubeflow-trainer-api
2.3.0, kubeflow/trainer v2.3.0 for the variables PET_*; kubeflow-training 1.9.4 (kubeflow.org/v1);
volcano-sh/apis@536f121 pkg/apis/batch/v1alpha1/job.go and volcano.sh documentation of the plugins env and svc.
"""

from collections.abc import Mapping

from service.estimator.question import Question
from service.formats.program import NAME, Nodes, Program, launcher, script_of
from service.formats.rules import ExportRequest
from service.formats.text import yaml_text

IMAGE = "IMAGE"

_RESOURCES = {"CDNA": "amd.com/gpu", "Gaudi": "habana.ai/gaudi", "TPU": "google.com/tpu", "Xe": "gpu.intel.com/i915"}
"""Kubernetes resource names of accelerators, by the start of an architecture."""


def _resource_of(question: Question) -> str:
    found = (name for family, name in _RESOURCES.items() if question.gpu.architecture.startswith(family))
    return next(found, "nvidia.com/gpu")


def _template(request: ExportRequest, program: Program, nodes: Nodes, **others: str) -> dict[str, object]:
    """A template of pods that each run the program on all GPUs of a node."""
    container: dict[str, object] = {
        "name": "pytorch",
        "image": IMAGE,
        "command": ["bash", "-c"],
        "args": [script_of(program, nodes)],
        "resources": {"limits": {_resource_of(request.question): nodes.gpus_each}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - the pod's, not this host's
    }
    memory = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    return {"spec": {"containers": [container], "volumes": [memory], **others}}


def _manifest(api_version: str, kind: str, spec: Mapping[str, object]) -> str:
    return yaml_text({"apiVersion": api_version, "kind": kind, "metadata": {"name": NAME}, "spec": spec})


def _jobset(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    job = {
        "parallelism": nodes.count,
        "completions": nodes.count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": _template(request, program, nodes, restartPolicy="Never"),
    }
    replicated = {"name": "node", "replicas": 1, "template": {"spec": job}}
    spec = {"network": {"enableDNSHostnames": True}, "replicatedJobs": [replicated]}
    return _manifest("jobset.x-k8s.io/v1alpha2", "JobSet", spec)


JOBSET = launcher("jobset", _jobset)


def _volcano_job(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    template = _template(request, program, nodes, restartPolicy="OnFailure")
    spec = {
        "schedulerName": "volcano",
        "minAvailable": nodes.count,
        "plugins": {"env": [], "svc": []},
        "tasks": [{"name": "node", "replicas": nodes.count, "template": template}],
    }
    return _manifest("batch.volcano.sh/v1alpha1", "Job", spec)


VOLCANO = launcher("volcano", _volcano_job)


def _trainjob(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    trainer = {
        "image": IMAGE,
        "command": ["bash", "-c"],
        "args": [script_of(program, nodes)],
        "numNodes": nodes.count,
        "numProcPerNode": nodes.gpus_each,
        "resourcesPerNode": {"limits": {_resource_of(request.question): nodes.gpus_each}},
    }
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return _manifest("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)


TRAINJOB = launcher("trainjob", _trainjob)


def _pytorchjob(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    replica = {"restartPolicy": "OnFailure", "template": _template(request, program, nodes)}
    kinds = {"Master": 1, "Worker": nodes.count - 1}
    spec = {
        "runPolicy": {"backoffLimit": 0},
        "nprocPerNode": str(nodes.gpus_each),
        "pytorchReplicaSpecs": {kind: {"replicas": count, **replica} for kind, count in kinds.items() if count},
    }
    return _manifest("kubeflow.org/v1", "PyTorchJob", spec)


PYTORCHJOB = launcher("pytorchjob", _pytorchjob)
