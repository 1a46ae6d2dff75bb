"""Public objects of each kind: their GPUs are counted, and each is judged, or the user reads why it is not."""

import json
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from service.errors import Refused
from service.features.checks.scheduled import SILENT
from service.formats.launchers.manifests import KINDS, gpus_of, scheduled_by_kubernetes
from tests.api.asking import ADMISSION_TOKEN, Ask

FOLDER = Path(__file__).with_name("objects")
KEY: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "key.toml").read_text(encoding="utf-8"))

FILLED = {"NUM_NODES": 2, "GPU_PER_NODE": 8, "EFA_PER_NODE": 32, "TENSOR_PARALLEL": 4, "PIPELINE_PARALLEL": 2}
FILLED |= {"NUM_LAYERS": 36, "HIDDEN_SIZE": 4096, "NUM_ATTENTION_HEADS": 32, "SEQ_LENGTH": 2048}
FILLED |= {"MAX_POSITION_EMBEDDINGS": 2048, "MICRO_BATCH_SIZE": 1, "GLOBAL_BATCH_SIZE": 288}
"""Values of the template, as its own page sets them."""

each_object = pytest.mark.parametrize("name", KEY)

MEGATRON = (
    "pretrain_gpt.py --num-layers {layers} --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 "
    "--vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear --bf16 --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 --global-batch-size 96 "
    "--tensor-model-parallel-size 8 --attention-backend flash"
)


def public(name: str) -> dict[str, Any]:
    """An object as it was published."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    text = Template(text).safe_substitute(FILLED) if name == "pytorchjob" else text
    found: dict[str, Any] = next(one for one in yaml.safe_load_all(text) if one)
    return found


def containers_of(value: Any) -> Iterator[dict[str, Any]]:
    """Containers of all pods of an object."""
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        if name == "containers":
            yield from inner
        else:
            yield from containers_of(inner)


def training(name: str, layers: int) -> dict[str, Any]:
    """The same object, with a training on eight GPUs a pod as what it starts."""
    found = deepcopy(public(name))
    words = ["torchrun", *MEGATRON.format(layers=layers).split()]
    limits = {"limits": {"nvidia.com/gpu": 8}}
    trainers = [one for one in containers_of(found) if gpus_of(one)] or list(containers_of(found))
    for one in containers_of(found):
        one |= {"command": words, "args": []}
    for one in trainers:
        one["resources"] = limits
    spec = found["spec"]
    if found["kind"] == "TrainJob":
        spec["trainer"] |= {"command": words, "resourcesPerNode": limits}
    if found["kind"] == "RayJob":
        spec["entrypoint"] = " ".join(words)
    if found["kind"] == "RayCluster":
        spec["headGroupSpec"]["template"]["spec"]["containers"][0]["command"] = ["ray", "start"]
    site: dict[str, Any] = {"cluster": {"gpu": "h100"}}
    if found["kind"] == "RayCluster":
        site |= {"model": "llama-3.2-1b" if layers == SMALL else "llama-3.1-405b", "recipe": {"sequence_length": 4096}}
    found["metadata"] |= {"labels": {}, "annotations": {"traincost/question": json.dumps(site)}}
    found["metadata"].pop("ownerReferences", None)
    for template in [one for one in (spec.get("template"), spec) if one]:
        template.get("spec", template).pop("nodeSelector", None)
    return found


SMALL, LARGE = 32, 640


def reviewed(ask: Ask, manifest: dict[str, Any]) -> dict[str, Any]:
    """The webhook's response."""
    request = {"uid": "1", "operation": "CREATE", "object": manifest}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = ask("POST", f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}", json=body)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()["response"]
    return response


def workload(name: str, layers: int) -> dict[str, Any]:
    """The Workload that Kueue makes of a Job."""
    job = training(name, layers)
    pods = {"name": "main", "count": 1, "template": job["spec"]["template"]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    metadata = {"annotations": job["metadata"]["annotations"], "ownerReferences": [owner]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"podSets": [pods]},
    }


def test_every_kind_that_is_read_is_here() -> None:
    assert {one["kind"] for one in KEY.values()} | {"Workload"} == set(KINDS)
    assert len(KEY) + 1 == 12


@each_object
def test_gpus_are_counted(name: str) -> None:
    key = KEY[name]
    if "gpus" not in key:
        with pytest.raises(Refused) as refused:
            scheduled_by_kubernetes(public(name))
        assert [one.code for one in refused.value.problems] == [key["not_judged"]]
        return
    job = scheduled_by_kubernetes(public(name))
    assert (job.gpus, job.gpus_each) == (key["gpus"], key["gpus_each"])


@each_object
def test_what_is_not_judged_is_admitted_with_the_reason(name: str, ask: Ask) -> None:
    found, key = reviewed(ask, public(name)), KEY[name]
    assert found["allowed"] is True
    if key["not_judged"] in SILENT:
        assert found.keys() == {"uid", "allowed"}
        return
    assert found["auditAnnotations"] == {"not-judged": key["not_judged"]}
    assert found["warnings"][0].startswith("traincost: not checked: ")


@pytest.mark.parametrize("name", [*KEY, "workload"])
def test_every_kind_is_judged(name: str, ask: Ask) -> None:
    small, large = (
        workload("job", layers) if name == "workload" else training(name, layers) for layers in (SMALL, LARGE)
    )
    fits, denied = reviewed(ask, small), reviewed(ask, large)
    assert fits["allowed"] is True
    assert fits["auditAnnotations"]["estimate"].startswith("est_"), fits
    assert denied["allowed"] is False
    assert denied["status"]["message"].startswith("traincost: out of memory: ")


def test_what_another_object_made_is_checked_with_it(ask: Ask) -> None:
    manifest = training("job", LARGE)
    manifest["metadata"]["ownerReferences"] = [{"kind": "JobSet", "name": "train", "controller": True}]
    assert reviewed(ask, manifest) == {"uid": "1", "allowed": True}


def test_variables_of_the_container_are_those_of_its_script(ask: Ask) -> None:
    def answered(layers: int) -> dict[str, Any]:
        manifest = training("job", 0)
        script = f"torchrun {MEGATRON.format(layers='$LAYERS')}"
        for container in containers_of(manifest):
            container |= {
                "command": ["bash", "-c", script],
                "args": [],
                "env": [{"name": "LAYERS", "value": str(layers)}],
            }
        return reviewed(ask, manifest)

    assert answered(SMALL)["auditAnnotations"]["estimate"].startswith("est_")
    assert answered(LARGE)["allowed"] is False


def test_gpus_that_a_worker_of_ray_states_count_where_no_limit_names_them() -> None:
    pod = {"spec": {"containers": [{"name": "ray"}]}}
    group = {"replicas": 2, "rayStartParams": {"num-gpus": "8"}, "template": pod}
    spec = {"entrypoint": "python a.py", "rayClusterSpec": {"headGroupSpec": {}, "workerGroupSpecs": [group]}}
    found = scheduled_by_kubernetes({"kind": "RayJob", "spec": spec})
    assert (found.gpus, found.gpus_each) == (16, 8)
