"""Objects of Kubernetes that train: their pods, GPUs, and what they start.

Source: core/v1 and batch/v1 of Kubernetes 1.37; jobset.x-k8s.io/v1alpha2 and trainer.kubeflow.org/v1alpha1 of
kubeflow-trainer-api 2.3.0, kubeflow/trainer v2.3.0 for the variables PET_*; kubeflow-training 1.9.4 (kubeflow.org/v1);
kubeflow/mpi-operator@013fa15 pkg/apis/kubeflow/v2beta1/types.go; ray-project/kuberay@026f143
ray-operator/apis/ray/v1; kubernetes-sigs/lws@024af08 api/leaderworkerset/v1; volcano-sh/apis@536f121
pkg/apis/batch/v1alpha1/job.go; kueue.x-k8s.io/v1beta1.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from shlex import join
from typing import Any, NamedTuple

from service.errors import Problem, Refused
from service.formats.program import Scheduled
from service.formats.training import Job
from service.text_bounds import bound_json

ANNOTATION = "traincost/question"

LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
"""Labels of nodes that name their GPU."""

MACHINES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
"""Labels of nodes that name their machine."""

RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "gpu.intel.com/i915", "google.com/tpu")

MOST_GPUS = 1 << 20

_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash")


@dataclass(frozen=True, slots=True)
class _Pods:
    """Pods of one template."""

    count: int
    spec: Mapping[str, Any]
    """Their containers, and what they select nodes by."""
    stated: int = 0
    """GPUs of one as its program takes them, where no container has a limit for them, such as by resource claims."""

    @property
    def gpus_each(self) -> int:
        """GPUs of one of them."""
        return sum(map(gpus_of, self.containers)) or self.stated

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        return _list(self.spec, "containers")

    @property
    def trainer(self) -> Mapping[str, Any]:
        """The container with GPUs; the first one where none has any."""
        containers = self.containers
        return next((one for one in containers if gpus_of(one)), containers[0] if containers else {})


class _Training(NamedTuple):
    """What an object starts."""

    pods: list[_Pods]
    script: str | Problem | None = None
    """The command where it is not that of the pods, or why there is none."""


def scheduled_by_kubernetes(manifest: Mapping[str, Any]) -> Scheduled:
    """The job of an object."""
    metadata, spec = _object(manifest, "metadata"), _object(manifest, "spec")
    training_of = _KINDS.get(str(manifest.get("kind")))
    if training_of is None:
        raise Refused(_problem("not_read", "objects of this kind are not read", f"check one of {', '.join(_KINDS)}"))
    if training_of is not _workload:
        _refuse_parts(metadata)
    training = training_of(spec)
    pods = [one for one in training.pods if one.gpus_each * one.count]
    if not pods:
        raise Refused(_problem("no_gpus", "no container asks for GPUs", f"set the limit {RESOURCES[0]}, such as 8"))
    first = pods[0]
    labels = _labels(first.spec)
    limit = _count(spec.get("activeDeadlineSeconds")) or _count(_object(spec, "runPolicy").get("activeDeadlineSeconds"))
    return Scheduled(
        script=_scripts(pods, training.pods) if training.script is None else training.script,
        job=Job(variables=_environment(first.trainer)),
        gpus=min(sum(one.gpus_each * one.count for one in pods), MOST_GPUS),
        gpus_each=first.gpus_each,
        gpu=next((labels[label] for label in LABELS if label in labels), None),
        machine=next((labels[label] for label in MACHINES if label in labels), None),
        time_limit_seconds=limit or None,
        overrides=_overrides(_object(metadata, "annotations")),
    )


def _problem(code: str, message: str, fix: str) -> Problem:
    return Problem(field="object", code=code, message=message, fix=fix)


def _refuse_parts(metadata: Mapping[str, Any]) -> None:
    """Refuse what is a part of another object, whose other parts are unknown here."""
    for owner in _list(metadata, "ownerReferences"):
        if owner.get("controller") is True:
            message = "another object made it, and is checked in its place"
            raise Refused(_problem("owned", message, "check that object"))
    if _GROUP in _object(metadata, "labels"):
        message = "the pod is one of a group, and the GPUs of the others are unknown"
        raise Refused(_problem("part_of_a_group", message, "start the group as one object, such as a Job"))


_GROUP = "kueue.x-k8s.io/pod-group-name"
"""Label of plain pods that Kueue admits together."""


def gpus_of(container: Mapping[str, Any]) -> int:
    """GPUs of a container.

    >>> gpus_of({"resources": {"limits": {"nvidia.com/gpu": "8"}}})
    8
    """
    limits = {**_object(container, "resources", "requests"), **_object(container, "resources", "limits")}
    return sum(_count(limits.get(name)) for name in RESOURCES)


def _groups(groups: Iterable[Mapping[str, Any]], count: str) -> list[_Pods]:
    """Pods of groups that each have a number and a template."""
    return [_Pods(_count(one.get(count, 1)), _object(one, "template", "spec")) for one in groups]


def _pod(spec: Mapping[str, Any]) -> _Training:
    return _Training([_Pods(1, spec)])


def _job(spec: Mapping[str, Any]) -> _Training:
    """A Job: of Kubernetes, or of Volcano, whose Job has tasks."""
    return _Training(_groups(_list(spec, "tasks"), "replicas") if "tasks" in spec else _groups([spec], "parallelism"))


def _cron_job(spec: Mapping[str, Any]) -> _Training:
    return _job(_object(spec, "jobTemplate", "spec"))


def _job_set(spec: Mapping[str, Any]) -> _Training:
    pods = []
    for replicated in _list(spec, "replicatedJobs"):
        replicas = _count(replicated.get("replicas", 1))
        pods += [_Pods(replicas * one.count, one.spec) for one in _job(_object(replicated, "template", "spec")).pods]
    return _Training(pods)


def _replica_specs(spec: Mapping[str, Any], name: str) -> dict[str, Mapping[str, Any]]:
    return {role: one for role, one in _object(spec, name).items() if isinstance(one, Mapping)}


def _pytorch_job(spec: Mapping[str, Any]) -> _Training:
    return _Training(_groups(_replica_specs(spec, "pytorchReplicaSpecs").values(), "replicas"))


def _mpi_job(spec: Mapping[str, Any]) -> _Training:
    """An MPIJob, whose launcher starts the program on the workers."""
    roles = _replica_specs(spec, "mpiReplicaSpecs")
    launcher = _groups([roles.get("Launcher", {})], "replicas")[0].trainer
    return _Training(_groups(roles.values(), "replicas"), _script(launcher))


def _train_job(spec: Mapping[str, Any]) -> _Training:
    trainer = _object(spec, "trainer")
    if not trainer.get("resourcesPerNode"):
        message = "the object gives no trainer.resourcesPerNode, and its runtime, which does, is not read"
        raise Refused(_problem("in_runtime", message, "give trainer.resourcesPerNode"))
    container = {**trainer, "resources": trainer.get("resourcesPerNode")}
    overrides = [*_list(spec, "podTemplateOverrides"), *_list(spec, "podSpecOverrides")]
    selectors = [_object(one, "spec", "nodeSelector") or _object(one, "nodeSelector") for one in overrides]
    for patch in _list(spec, "runtimePatches"):
        jobs = _list(_object(patch, "trainingRuntimeSpec", "template", "spec"), "replicatedJobs")
        selectors += [_object(one, "template", "spec", "template", "spec", "nodeSelector") for one in jobs]
    labels = {name: value for one in selectors for name, value in one.items()}
    return _Training([_Pods(_count(trainer.get("numNodes", 1)), {"containers": [container], "nodeSelector": labels})])


_STARTS_NOTHING = _problem(
    "no_command", "a RayCluster starts no program: jobs that are submitted to it do", "submit by checked_submit.py"
)


def _ray_cluster(spec: Mapping[str, Any], script: str | Problem = _STARTS_NOTHING) -> _Training:
    groups = _list(spec, "workerGroupSpecs")
    least, most = ([_count(one.get(name)) for one in groups] for name in ("minReplicas", "maxReplicas"))
    if spec.get("enableInTreeAutoscaling") is True and least != most:
        message = "the Ray cluster grows and shrinks, so the number of GPUs is not known before it runs"
        raise Refused(_problem("autoscaled", message, "leave enableInTreeAutoscaling out"))
    pods = _groups([_object(spec, "headGroupSpec")], "replicas")
    for group, fewest in zip(groups, least, strict=True):
        hosts = max(_count(group.get("replicas")), fewest) * _count(group.get("numOfHosts", 1))
        stated = _count(_object(group, "rayStartParams").get("num-gpus"))
        pods.append(_Pods(hosts, _object(group, "template", "spec"), stated))
    return _Training(pods, script)


def _ray_job(spec: Mapping[str, Any]) -> _Training:
    if not _object(spec, "rayClusterSpec"):
        message = "the object gives no rayClusterSpec, so the GPUs of the cluster that runs it are unknown"
        raise Refused(_problem("no_cluster", message, "submit to that cluster by checked_submit.py"))
    return _ray_cluster(_object(spec, "rayClusterSpec"), str(spec.get("entrypoint") or ""))


def _leader_worker_set(spec: Mapping[str, Any]) -> _Training:
    """One group: each of the replicas is a group that trains by itself."""
    group = _object(spec, "leaderWorkerTemplate")
    worker = _object(group, "workerTemplate", "spec")
    leader = _object(group, "leaderTemplate", "spec") or worker
    return _Training([_Pods(1, leader), _Pods(max(_count(group.get("size", 1)) - 1, 0), worker)])


def _workload(spec: Mapping[str, Any]) -> _Training:
    return _Training(_groups(_list(spec, "podSets"), "count"))


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], _Training]] = {
    "Pod": _pod,
    "Job": _job,
    "CronJob": _cron_job,
    "JobSet": _job_set,
    "PyTorchJob": _pytorch_job,
    "MPIJob": _mpi_job,
    "TrainJob": _train_job,
    "RayJob": _ray_job,
    "RayCluster": _ray_cluster,
    "LeaderWorkerSet": _leader_worker_set,
    "Workload": _workload,
}

KINDS = tuple(_KINDS)
"""Kinds of objects that are read; Job is that of Kubernetes and that of Volcano."""


def _labels(spec: Mapping[str, Any]) -> dict[str, str]:
    """Labels that the nodes of pods have: those selected, and those that an affinity requires to have one value."""
    labels = {}
    required = _object(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = _list(required, "nodeSelectorTerms")
    for expression in _list(terms[0], "matchExpressions") if len(terms) == 1 else []:
        values = _items(expression, "values")
        if expression.get("operator") == "In" and len(values) == 1:
            labels[str(expression.get("key"))] = str(values[0])
    return labels | {name: str(value) for name, value in _object(spec, "nodeSelector").items()}


LONGEST_VALUE = 256
"""Characters of an environment variable that are put into a command; paths are shorter."""

_REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][\w.-]{0,127})\)")
"""A variable in a command of a container, or with two signs the text itself."""


def _scripts(pods: list[_Pods], others: list[_Pods]) -> str | Problem:
    """What pods start, first those with GPUs; a pod without any may start the program on theirs."""
    scripts = dict.fromkeys(_script(one.trainer) for one in (*pods, *others))
    known = [script for script in scripts if isinstance(script, str)]
    return "\n".join(known) if known else next(iter(scripts))


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a container with the values that the object gives."""
    given = {str(one.get("name")): one.get("value") for one in _list(container, "env")}
    return {name: str(value) for name, value in given.items() if value is not None}


def _script(container: Mapping[str, Any]) -> str | Problem:
    """The script of a container: the argument of a shell's -c, or the whole command."""
    values = _environment(container)

    def value_of(found: re.Match[str]) -> str:
        value = values.get(found[2], "")
        return found[0][1:] if found[1] else value if found[2] in values and len(value) <= LONGEST_VALUE else found[0]

    words = [_REFERENCE.sub(value_of, str(word)) for name in ("command", "args") for word in _items(container, name)]
    if not words:
        return _problem("no_command", "the container states no command: that of its image starts", "give command")
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
    fix = 'give one, such as {"cluster": {"gpu": "h100"}}'
    raise Refused(_problem("not_an_object", f"the annotation {ANNOTATION} is no JSON object", fix))


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
