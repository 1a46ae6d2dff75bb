"""Kubernetes: manifests of JobSet (one indexed Job, a pod for each node), PyTorchJob, TrainJob and Volcano.

Source: batch/v1 of Kubernetes 1.37; jobset.x-k8s.io/v1alpha2 and trainer.kubeflow.org/v1alpha1 of kubeflow-trainer-api
2.3.0, kubeflow/trainer v2.3.0 for the variables PET_*; kubeflow-training 1.9.4 (kubeflow.org/v1);
volcano-sh/apis@536f121 pkg/apis/batch/v1alpha1/job.go and volcano.sh documentation of the plugins env and svc.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from service.catalogue import shipped_catalogue
from service.estimator.complete import CompleteQuestion
from service.estimator.question import Question
from service.formats.launchers.manifests import ANNOTATION, LABELS
from service.formats.model_names import preset_like
from service.formats.model_names import stated as stated_fields
from service.formats.program import NAME, Nodes, Program, launcher, script_of
from service.formats.rules import MODEL, ExportRequest, values_of
from service.formats.text import yaml_text

IMAGE = "IMAGE"

_RESOURCES = {"CDNA": "amd.com/gpu", "Gaudi": "habana.ai/gaudi", "TPU": "google.com/tpu", "Xe": "gpu.intel.com/i915"}
"""Kubernetes resource names of accelerators, by the start of an architecture."""


def _resource_of(question: Question) -> str:
    found = (name for family, name in _RESOURCES.items() if question.gpu.architecture.startswith(family))
    return next(found, "nvidia.com/gpu")


def _selector(question: Question) -> dict[str, str]:
    """The label of nodes with the GPU, as NVIDIA's feature discovery writes its driver's name; none for other makers.

    Source: NVIDIA/k8s-device-plugin internal/lm/resource.go (blanks of the product's name become hyphens).
    """
    row = shipped_catalogue().gpus.get(question.gpu.slug)
    name = row.aliases[0].replace(" ", "-") if row is not None and row.vendor == "NVIDIA" and row.aliases else ""
    return {LABELS[0]: name} if name else {}


def _annotation(question: CompleteQuestion, program: Program) -> str:
    """What a check of the object needs beside its command: the GPU, and what the program leaves open."""
    stated: dict[str, Any] = {"cluster": {"gpu": question.gpu.slug}}
    values, open_fields = values_of(question), {one.field for one in program.not_expressible if one.left_open}
    if MODEL in open_fields:
        stated[MODEL] = preset_like(question.model) or stated_fields(question.model)
    for part in ("recipe", "layout"):
        names = [one.name for one in fields(getattr(question, part)) if {part, f"{part}.{one.name}"} & open_fields]
        found = {name: values[f"{part}.{name}"] for name in names if f"{part}.{name}" in values}
        found.pop("global_batch_tokens", None)  # global_batch says it
        stated |= {part: found} if found else {}
    return json.dumps(stated, default=asdict)


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
    selector = {"nodeSelector": _selector(request.question)}
    return {
        "spec": {
            "containers": [container],
            "volumes": [memory],
            **(selector if all(selector.values()) else {}),
            **others,
        }
    }


def _manifest(api_version: str, kind: str, spec: Mapping[str, object], request: ExportRequest, program: Program) -> str:
    metadata = {"name": NAME, "annotations": {ANNOTATION: _annotation(request.question, program)}}
    return yaml_text({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})


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
    return _manifest("jobset.x-k8s.io/v1alpha2", "JobSet", spec, request, program)


JOBSET = launcher("jobset", _jobset)


def _volcano_job(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    template = _template(request, program, nodes, restartPolicy="OnFailure")
    spec = {
        "schedulerName": "volcano",
        "minAvailable": nodes.count,
        "plugins": {"env": [], "svc": []},
        "tasks": [{"name": "node", "replicas": nodes.count, "template": template}],
    }
    return _manifest("batch.volcano.sh/v1alpha1", "Job", spec, request, program)


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
    spec: dict[str, object] = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    if selector := _selector(request.question):
        pods = {"template": {"spec": {"template": {"spec": {"nodeSelector": selector}}}}}
        runtime = {"template": {"spec": {"replicatedJobs": [{"name": "node", **pods}]}}}
        spec["runtimePatches"] = [{"manager": "traincost", "trainingRuntimeSpec": runtime}]
    return _manifest("trainer.kubeflow.org/v1alpha1", "TrainJob", spec, request, program)


TRAINJOB = launcher("trainjob", _trainjob)


def _pytorchjob(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    replica = {"restartPolicy": "OnFailure", "template": _template(request, program, nodes)}
    kinds = {"Master": 1, "Worker": nodes.count - 1}
    spec = {
        "runPolicy": {"backoffLimit": 0},
        "nprocPerNode": str(nodes.gpus_each),
        "pytorchReplicaSpecs": {kind: {"replicas": count, **replica} for kind, count in kinds.items() if count},
    }
    return _manifest("kubeflow.org/v1", "PyTorchJob", spec, request, program)


PYTORCHJOB = launcher("pytorchjob", _pytorchjob)
