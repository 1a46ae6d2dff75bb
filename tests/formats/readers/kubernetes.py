"""Reads manifests with the models that the projects publish: what a model does not know, it does not give back."""

import json
import sys
from typing import Any


def main() -> None:
    import yaml

    found = []
    for content in json.load(sys.stdin):
        manifest = yaml.safe_load(content)
        readers = {"TrainJob": train_job, "PyTorchJob": pytorch_job, "JobSet": job_set, "Job": volcano_job}
        given_back, pods = readers[manifest["kind"]](manifest)
        for pod in pods:
            judge_pod(pod)
        found.append({"manifest": manifest, "given_back": given_back})
    json.dump(found, sys.stdout)


def train_job(manifest: dict[str, Any]) -> tuple[Any, list[Any]]:
    """As Kubeflow Trainer's model has it."""
    from kubeflow_trainer_api import models

    return models.TrainerV1alpha1TrainJob.from_dict(manifest).to_dict(), []


def job_set(manifest: dict[str, Any]) -> tuple[Any, list[Any]]:
    """As the model of JobSet has it that Kubeflow Trainer publishes."""
    from kubeflow_trainer_api import models

    read = models.JobsetV1alpha2JobSet.from_dict(manifest).to_dict()
    (job,) = manifest["spec"]["replicatedJobs"]
    return read, [job["template"]["spec"]["template"]["spec"]]


def pytorch_job(manifest: dict[str, Any]) -> tuple[Any, list[Any]]:
    """As the Training Operator's model has it."""
    from kubeflow.training import ApiClient, KubeflowOrgV1PyTorchJob

    class Response:
        data = json.dumps(manifest)

    client = ApiClient()
    replicas = manifest["spec"]["pytorchReplicaSpecs"].values()
    read = client.deserialize(Response(), KubeflowOrgV1PyTorchJob.__name__)
    return client.sanitize_for_serialization(read), [one["template"]["spec"] for one in replicas]


def volcano_job(manifest: dict[str, Any]) -> tuple[Any, list[Any]]:
    """As it is; Volcano publishes no model, and the test holds its names against a list."""
    return manifest, [task["template"]["spec"] for task in manifest["spec"]["tasks"]]


def judge_pod(spec: dict[str, Any]) -> None:
    """Refuse a pod that the schema of Kubernetes does not know in every field."""
    import kubernetes_validate

    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


if __name__ == "__main__":
    main()
