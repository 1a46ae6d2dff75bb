"""Kubernetes: manifests of JobSet (one indexed Job, a pod for each node), PyTorchJob, TrainJob and Volcano, both ways.

Source: batch/v1 of Kubernetes 1.37; jobset.x-k8s.io/v1alpha2 and trainer.kubeflow.org/v1alpha1 of kubeflow-trainer-api
2.3.0, kubeflow/trainer v2.3.0 for the variables PET_*; kubeflow-training 1.9.4 (kubeflow.org/v1);
volcano-sh/apis@536f121 pkg/apis/batch/v1alpha1/job.go and volcano.sh documentation of the plugins env and svc;
kueue.x-k8s.io/v1beta1.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from shlex import join
from typing import Any

from service.errors import Problem, Refused
from service.estimator.question import Question
from service.formats.program import NAME, Nodes, Program, Scheduled, launcher, script_of
from service.formats.rules import ExportRequest
from service.formats.text import yaml_text
from service.text_bounds import bound_json

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


ANNOTATION = "traincost/question"

LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
"""Labels of nodes that name their GPU."""

RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "gpu.intel.com/i915")

MOST_GPUS = 1 << 20

_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")


@dataclass(frozen=True, slots=True)
class _Pods:
    count: int
    container: Mapping[str, Any]
    """Its command, args and resources."""
    labels: Mapping[str, Any]


def scheduled_by_kubernetes(manifest: Mapping[str, Any]) -> Scheduled | None:
    """The job of a manifest; None where no pod has GPUs."""
    spec = _object(manifest, "spec")
    pods_of = _KINDS.get(str(manifest.get("kind")))
    pods = [] if pods_of is None else [one for one in pods_of(spec) if gpus_of(one.container) * one.count]
    if not pods:
        return None
    overrides = _overrides(_object(manifest, "metadata", "annotations"))
    limit = _count(spec.get("activeDeadlineSeconds")) or _count(_object(spec, "runPolicy").get("activeDeadlineSeconds"))
    return Scheduled(
        script=_script(pods[0].container),
        gpus=min(sum(gpus_of(one.container) * one.count for one in pods), MOST_GPUS),
        gpus_each=gpus_of(pods[0].container),
        gpu=next((str(pods[0].labels[label]) for label in LABELS if label in pods[0].labels), None),
        time_limit_seconds=limit or None,
        overrides=overrides,
    )


def gpus_of(container: Mapping[str, Any]) -> int:
    """GPUs of a container.

    >>> gpus_of({"resources": {"limits": {"nvidia.com/gpu": "8"}}})
    8
    """
    limits = {**_object(container, "resources", "requests"), **_object(container, "resources", "limits")}
    return sum(_count(limits.get(name)) for name in RESOURCES)


def _pods_of(groups: Iterable[Mapping[str, Any]], count: str) -> list[_Pods]:
    """Pods of groups that each have a number and a template, one entry for each container with GPUs."""
    results = []
    for group in groups:
        spec = _object(group, "template", "spec")
        number, labels = _count(group.get(count, 1)), _object(spec, "nodeSelector")
        results += [_Pods(number, one, labels) for one in _list(spec, "containers") if gpus_of(one)]
    return results


def _job(spec: Mapping[str, Any]) -> list[_Pods]:
    """Pods of a Job: of Kubernetes, or of Volcano, whose Job has tasks."""
    return _pods_of(_list(spec, "tasks"), "replicas") if "tasks" in spec else _pods_of([spec], "parallelism")


def _job_set(spec: Mapping[str, Any]) -> list[_Pods]:
    results = []
    for replicated in _list(spec, "replicatedJobs"):
        replicas = _count(replicated.get("replicas", 1))
        inner = _job(_object(replicated, "template", "spec"))
        results += [_Pods(replicas * pods.count, pods.container, pods.labels) for pods in inner]
    return results


def _pytorch_job(spec: Mapping[str, Any]) -> list[_Pods]:
    kinds = _object(spec, "pytorchReplicaSpecs").values()
    return _pods_of((one for one in kinds if isinstance(one, Mapping)), "replicas")


def _train_job(spec: Mapping[str, Any]) -> list[_Pods]:
    trainer = _object(spec, "trainer")
    container = {**trainer, "resources": trainer.get("resourcesPerNode")}
    return [_Pods(_count(trainer.get("numNodes", 1)), container, {})]


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], list[_Pods]]] = {
    "Job": _job,
    "JobSet": _job_set,
    "PyTorchJob": _pytorch_job,
    "TrainJob": _train_job,
    "Workload": lambda spec: _pods_of(_list(spec, "podSets"), "count"),
}


def _script(container: Mapping[str, Any]) -> str:
    """The script of a container: the argument of a shell's -c, or the whole command."""
    words = [str(word) for name in ("command", "args") for word in _items(container, name)]
    if len(words) > 2 and words[0] in _SHELLS and words[1].startswith("-") and words[1].endswith("c"):
        return words[2]
    return join(words)


def _overrides(annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    text = annotations.get(ANNOTATION)
    if text is None:
        return {}
    try:
        overrides = _object_in(text) if isinstance(text, str) else None
    except (Refused, ValueError, RecursionError):
        overrides = None
    if isinstance(overrides, dict):
        return overrides
    message, fix = f"the annotation {ANNOTATION} is no JSON object", 'give one, such as {"cluster": {"gpu": "h100"}}'
    raise Refused(Problem(field="object", code="not_an_object", message=message, fix=fix))


def _object_in(text: str) -> Any:
    bound_json(text)
    value = json.loads(text, parse_constant=_not_finite)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _not_finite(_: str) -> Any:
    raise ValueError


def _object(value: object, *names: str) -> Mapping[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _list(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [one for one in _items(value, name) if isinstance(one, Mapping)]


def _items(value: Mapping[str, Any], name: str) -> list[Any]:
    items = value.get(name)
    return items if isinstance(items, list) else []


def _count(value: object) -> int:
    """A whole number, also as text, which Kubernetes allows; 0 for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_GPUS else 0


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
