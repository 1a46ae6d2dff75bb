"""Kubernetes: manifests of JobSet (one indexed Job, a pod for each node), PyTorchJob, TrainJob and Volcano, both ways.

Source: batch/v1 of Kubernetes 1.37; jobset.x-k8s.io/v1alpha2 and trainer.kubeflow.org/v1alpha1 of kubeflow-trainer-api
2.3.0, kubeflow/trainer v2.3.0 for the variables PET_*; kubeflow-training 1.9.4 (kubeflow.org/v1);
volcano-sh/apis@536f121 pkg/apis/batch/v1alpha1/job.go and volcano.sh documentation of the plugins env and svc;
kueue.x-k8s.io/v1beta1.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from shlex import join
from typing import Any

from service.errors import Problem, Refused
from service.formats.program import (
    IMAGE,
    NAME,
    YOUR_IMAGE,
    Nodes,
    Program,
    Rendezvous,
    Scheduled,
    pod,
    resource_of,
    script_of,
    writer,
)
from service.formats.rules import ExportRequest, Target, Version
from service.formats.text import yaml_text
from service.text_bounds import bound_json

_REPLICATED_JOB = "node"

JOBSET_RENDEZVOUS = Rendezvous(rank='"$JOB_COMPLETION_INDEX"', address=f"{NAME}-{_REPLICATED_JOB}-0-0.{NAME}")


def _jobset(job: ExportRequest, program: Program, nodes: Nodes) -> str:
    template = {"spec": {**pod(job, nodes, script_of(program, nodes, JOBSET_RENDEZVOUS)), "restartPolicy": "Never"}}
    spec = {
        "parallelism": nodes.count,
        "completions": nodes.count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template,
    }
    return yaml_text(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": NAME},
            "spec": {
                "network": {"enableDNSHostnames": True},
                "replicatedJobs": [{"name": _REPLICATED_JOB, "replicas": 1, "template": {"spec": spec}}],
            },
        }
    )


JOBSET = Target(
    name="jobset",
    tool="JobSet",
    kind="launcher",
    versions={
        "v1alpha2": Version(covers="jobset.x-k8s.io/v1alpha2", file_name="jobset.yaml", media_type="application/yaml"),
    },
    write=writer(_jobset, YOUR_IMAGE),
    source="kubeflow-trainer-api 2.3.0, jobset.x-k8s.io/v1alpha2",
)


ANNOTATION = "traincost/question"
"""Annotation with parts of the question, as JSON."""

LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
"""Labels of nodes that name their GPU."""

RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "gpu.intel.com/i915")
"""Resources that count GPUs."""

MOST_GPUS = 1 << 20

_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")


@dataclass(frozen=True, slots=True)
class _Pods:
    """Identical pods of a manifest."""

    count: int
    container: Mapping[str, Any]
    """Its command, args and resources."""
    labels: Mapping[str, Any]
    """Labels that its nodes must have."""


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


def _pods_of_template(count: int, template: Mapping[str, Any]) -> list[_Pods]:
    """Pods of a template, one entry for each container with GPUs."""
    spec = _object(template, "spec")
    containers = [one for one in _list(spec, "containers") if gpus_of(one)]
    return [_Pods(count, one, _object(spec, "nodeSelector")) for one in containers]


def _job(spec: Mapping[str, Any]) -> list[_Pods]:
    """Pods of a Job: of Kubernetes, or of Volcano, whose Job has tasks."""
    if "tasks" in spec:
        return [
            pods
            for one in _list(spec, "tasks")
            for pods in _pods_of_template(_count(one.get("replicas", 1)), _object(one, "template"))
        ]
    return _pods_of_template(_count(spec.get("parallelism", 1)), _object(spec, "template"))


def _job_set(spec: Mapping[str, Any]) -> list[_Pods]:
    results = []
    for replicated in _list(spec, "replicatedJobs"):
        replicas = _count(replicated.get("replicas", 1))
        inner = _job(_object(replicated, "template", "spec"))
        results += [_Pods(replicas * pods.count, pods.container, pods.labels) for pods in inner]
    return results


def _pytorch_job(spec: Mapping[str, Any]) -> list[_Pods]:
    kinds = _object(spec, "pytorchReplicaSpecs").values()
    replicas = [one for one in kinds if isinstance(one, Mapping)]
    return [
        pods for one in replicas for pods in _pods_of_template(_count(one.get("replicas", 1)), _object(one, "template"))
    ]


def _train_job(spec: Mapping[str, Any]) -> list[_Pods]:
    trainer = _object(spec, "trainer")
    container = {**trainer, "resources": trainer.get("resourcesPerNode")}
    return [_Pods(_count(trainer.get("numNodes", 1)), container, {})]


def _workload(spec: Mapping[str, Any]) -> list[_Pods]:
    sets = _list(spec, "podSets")
    return [pods for one in sets for pods in _pods_of_template(_count(one.get("count", 1)), _object(one, "template"))]


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], list[_Pods]]] = {
    "Job": _job,
    "JobSet": _job_set,
    "PyTorchJob": _pytorch_job,
    "TrainJob": _train_job,
    "Workload": _workload,
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
    """Parse JSON; refuse deep nesting, NaN and text that cannot be stored."""
    bound_json(text)
    value = json.loads(text, parse_constant=_not_finite)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _not_finite(_: str) -> Any:
    raise ValueError


def _object(value: object, *names: str) -> Mapping[str, Any]:
    """A nested object; empty where it is absent or no object."""
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


VOLCANO_RENDEZVOUS = Rendezvous(rank='"$VC_TASK_INDEX"', address='"${VC_NODE_HOSTS%%,*}"')


def _volcano_job(job: ExportRequest, program: Program, nodes: Nodes) -> str:
    template = {
        "spec": {**pod(job, nodes, script_of(program, nodes, VOLCANO_RENDEZVOUS)), "restartPolicy": "OnFailure"}
    }
    return yaml_text(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": NAME},
            "spec": {
                "schedulerName": "volcano",
                "minAvailable": nodes.count,
                "plugins": {"env": [], "svc": []},
                "tasks": [{"name": "node", "replicas": nodes.count, "template": template}],
            },
        }
    )


VOLCANO = Target(
    name="volcano",
    tool="Volcano",
    kind="launcher",
    versions={
        "v1alpha1": Version(
            covers="batch.volcano.sh/v1alpha1 at 536f121", file_name="volcano.yaml", media_type="application/yaml"
        ),
    },
    write=writer(_volcano_job, YOUR_IMAGE),
    source="volcano-sh/apis@536f121 pkg/apis/batch/v1alpha1/job.go",
)


TRAINJOB_RENDEZVOUS = Rendezvous(rank='"$PET_NODE_RANK"', address='"$PET_MASTER_ADDR"')


def _trainjob(job: ExportRequest, program: Program, nodes: Nodes) -> str:
    trainer = {
        "image": IMAGE,
        "command": ["bash", "-c"],
        "args": [script_of(program, nodes, TRAINJOB_RENDEZVOUS)],
        "numNodes": nodes.count,
        "numProcPerNode": nodes.gpus_each,
        "resourcesPerNode": {"limits": {resource_of(job.question): nodes.gpus_each}},
    }
    return yaml_text(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": NAME},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
        }
    )


TRAINJOB = Target(
    name="trainjob",
    tool="Kubeflow Trainer",
    kind="launcher",
    versions={
        "v1alpha1": Version(covers="Trainer v2.3", file_name="trainjob.yaml", media_type="application/yaml"),
    },
    write=writer(_trainjob, YOUR_IMAGE, "the runtime torch-distributed is installed with Kubeflow Trainer"),
    source="kubeflow-trainer-api 2.3.0",
)


PYTORCHJOB_RENDEZVOUS = Rendezvous(rank='"$PET_NODE_RANK"', address='"$MASTER_ADDR"')


def _pytorchjob(job: ExportRequest, program: Program, nodes: Nodes) -> str:
    template = {"spec": pod(job, nodes, script_of(program, nodes, PYTORCHJOB_RENDEZVOUS))}

    def replicas(count: int) -> dict[str, object]:
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

    others = {"Worker": replicas(nodes.count - 1)} if nodes.count > 1 else {}
    return yaml_text(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": NAME},
            "spec": {
                "runPolicy": {"backoffLimit": 0},
                "nprocPerNode": str(nodes.gpus_each),
                "pytorchReplicaSpecs": {"Master": replicas(1), **others},
            },
        }
    )


PYTORCHJOB = Target(
    name="pytorchjob",
    tool="Kubeflow Training Operator",
    kind="launcher",
    versions={
        "v1": Version(covers="Training Operator 1.9", file_name="pytorchjob.yaml", media_type="application/yaml"),
    },
    write=writer(_pytorchjob, YOUR_IMAGE),
    source="kubeflow-training 1.9.4",
)
