"""Objects for Kubernetes: their projects' own schemas know every field, and our own check judges them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from openapi_schema_validator import OAS31Validator

from service.formats.launchers.manifests import ANNOTATION
from tests.api.asking import ADMISSION_TOKEN, QUESTION, Ask
from tests.formats.tools import written

ROWS = json.loads((Path(__file__).parent.parent / "fields" / "crds.json").read_text(encoding="utf-8"))
SCHEMAS = {(row["apiVersion"], row["kind"]): row["schema"] for row in ROWS}
"""Schemas of the projects' CustomResourceDefinitions, strict, without texts, and without those of pods."""

KINDS = ("trainjob", "pytorchjob", "jobset", "volcano")


def object_of(content: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(content)
    return found


def faults_of(manifest: dict[str, Any]) -> list[str]:
    """What the project's own schema finds wrong in an object."""
    validator = OAS31Validator(SCHEMAS[manifest["apiVersion"], manifest["kind"]])
    return [error.message for error in validator.iter_errors(manifest)]


@pytest.mark.parametrize("name", KINDS)
def test_the_schema_of_the_project_takes_every_object(name: str) -> None:
    for _, file in written(name):
        manifest = object_of(file.content)
        assert faults_of(manifest) == []


def test_schemas_are_strict_and_name_their_sources() -> None:
    manifest = object_of(written("jobset")[0][1].content)
    assert "'replicas' was unexpected" in faults_of(manifest | {"spec": {"replicas": 1}})[0]
    assert all(len(row["source"].partition("@")[2].split()[0]) == 40 for row in ROWS)
    assert {row["licence"] for row in ROWS} == {"Apache-2.0"}


BIG = {**QUESTION, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 16}}
"""A question about two nodes, which fits."""


def with_recipe(stack: str, layout: dict[str, Any], **recipe: Any) -> dict[str, Any]:
    return {**BIG, "recipe": {**BIG["recipe"], "stack": stack, **recipe}, "layout": layout}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        (BIG, "ok"),
        (with_recipe("megatron-core", {"tensor": 1, "zero_stage": 0}), "deny"),
        (with_recipe("transformers", {"zero_stage": 3}, recompute="full"), "ok"),
        (with_recipe("transformers", {"zero_stage": 0}), "deny"),
        (with_recipe("torchtitan", {}), "ok"),
    ],
)
def test_our_own_webhook_judges_an_exported_object(ask: Ask, name: str, question: dict[str, Any], verdict: str) -> None:
    written_object = object_of(ask("POST", f"/v1/exports/{name}", json=question).json()["content"])
    asked = {"uid": "1", "object": written_object}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    answer = ask("POST", f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}", json=review).json()["response"]
    assert answer["allowed"] == (verdict != "deny")
    assert answer["auditAnnotations"]["estimate"]
    found = ask("POST", "/v1/adapters/kubernetes/check", json=written_object).json()
    own = ask("POST", "/v1/memory", json=question).json()
    assert found["verdict"] == verdict, found["reason"]
    peak = found["check"]["device_peak_bytes"]["value"]
    assert peak == pytest.approx(own["memory"]["device_peak_bytes"]["value"], rel=1e-3)


def test_an_object_names_its_gpu_by_label_and_annotation(ask: Ask) -> None:
    found = object_of(ask("POST", "/v1/exports/pytorchjob", json=BIG).json()["content"])
    selector = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["nodeSelector"]
    assert selector == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert json.loads(found["metadata"]["annotations"][ANNOTATION])["cluster"] == {"gpu": "h100-sxm5-80gb"}
    other = {**BIG, "cluster": {"gpu": "mi300x-192gb", "gpus": 16}}
    found = object_of(ask("POST", "/v1/exports/pytorchjob", json=other).json()["content"])
    assert "nodeSelector" not in found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]


def test_a_command_of_the_callers_is_judged_by_the_annotation(ask: Ask) -> None:
    answer = ask("POST", "/v1/exports/jobset", json=BIG, params={"command": "my_training.py"})
    found = ask("POST", "/v1/adapters/kubernetes/check", json=object_of(answer.json()["content"])).json()
    assert found["verdict"] == "ok", found["reason"]
