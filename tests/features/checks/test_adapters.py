"""Schedulers ask in their own words: what is exported for them is judged as the question behind it."""

import json
from typing import Any

import pytest
import yaml

from service.formats.launchers.manifests import KINDS
from tests.api.asking import ADMISSION_TOKEN, QUESTION, Ask, example_of

REVIEW = f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}"
CHECK = "/v1/adapters/kubernetes/check"
NODES = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
WRITTEN = ["Job", "JobSet", "PyTorchJob", "TrainJob", "Workload"]

FITS: dict[str, Any] = {
    "model": "llama-2-7b",
    "recipe": {"sequence_length": 4096, "global_batch": 64, "training_tokens": 262_144_000, "stack": "megatron-core"},
    "layout": {"tensor": 8},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 16},
}


def manifest_of(kind: str, ask: Ask, question: dict[str, Any]) -> dict[str, Any]:
    """A question as an object of Kubernetes that says its GPU."""
    exported = "jobset" if kind in {"Job", "Workload"} else kind.lower()
    answer = ask("POST", f"/v1/exports/{exported}", json=question)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = yaml.safe_load(answer.json()["content"])
    if kind == "TrainJob":
        found["metadata"]["annotations"] = {"traincost/question": json.dumps({"cluster": {"gpu": "h100"}})}
        return found
    if kind == "PyTorchJob":
        for replicas in found["spec"]["pytorchReplicaSpecs"].values():
            replicas["template"]["spec"]["nodeSelector"] = NODES
        return found
    job = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["template"]["spec"]["nodeSelector"] = NODES
    if kind == "Job":
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": job}
    if kind == "Workload":
        pods = {"name": "main", "count": job["parallelism"], "template": job["template"]}
        return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "spec": {"podSets": [pods]}}
    return found


def review(manifest: Any, operation: str = "CREATE") -> dict[str, Any]:
    """A review as the API server sends it."""
    request = {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": operation, "object": manifest}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def reviewed(ask: Ask, manifest: Any) -> dict[str, Any]:
    """What the webhook answers."""
    answer = ask("POST", REVIEW, json=review(manifest))
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert found["response"]["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    response: dict[str, Any] = found["response"]
    return response


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_manifest_is_judged_as_the_question_that_it_was_written_from(kind: str, ask: Ask) -> None:
    found = ask("POST", CHECK, json=manifest_of(kind, ask, FITS)).json()
    whole = ask("POST", "/v1/check", json=FITS).json()
    assert found["verdict"] == whole["verdict"] == "ok", found
    assert found["check"]["device_peak_bytes"]["value"] == pytest.approx(whole["device_peak_bytes"]["value"], rel=0.02)
    assert found["check"]["gpu_hours"]["value"] == pytest.approx(whole["gpu_hours"]["value"], rel=0.02)


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_webhook_admits_what_fits_and_refuses_what_does_not(kind: str, ask: Ask) -> None:
    fits = reviewed(ask, manifest_of(kind, ask, FITS))
    assert fits["allowed"] is True
    assert fits["auditAnnotations"]["estimate"].startswith("est_")
    assert "warnings" not in fits
    too_large = {**FITS, "model": "llama-3.1-405b"}
    refused = reviewed(ask, manifest_of(kind, ask, too_large))
    assert refused["allowed"] is False
    assert refused["status"]["message"].startswith("traincost: out of memory: ")


def test_a_deadline_of_the_job_is_warned_of(ask: Ask) -> None:
    manifest = manifest_of("Job", ask, FITS)
    manifest["spec"]["activeDeadlineSeconds"] = 60
    found = reviewed(ask, manifest)
    assert found["allowed"] is True
    (warning,) = found["warnings"]
    assert "exceeds the limit" in warning


def test_an_annotation_says_what_the_manifest_cannot(ask: Ask) -> None:
    manifest = manifest_of("TrainJob", ask, FITS)
    said = {"cluster": {"gpu": "h100"}, "price": {"usd_per_gpu_hour": 2}, "limits": {"cost_usd": 1}}
    manifest["metadata"]["annotations"]["traincost/question"] = json.dumps(said)
    found = reviewed(ask, manifest)
    assert found["allowed"] is True
    assert "cost_usd" in found["warnings"][0]


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        {},
        {"kind": "Pod", "spec": {"containers": []}},
        {"kind": "Job", "spec": {"template": {"spec": {"containers": "many"}}}},
        {"kind": "JobSet", "spec": {"replicatedJobs": [None, 1, {}]}},
        {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Master": 7}}},
        {"kind": "TrainJob", "spec": {"trainer": {"numNodes": "x", "resourcesPerNode": []}}},
        {"kind": "Job", "metadata": {"annotations": {"traincost/question": "["}}, "spec": {"template": {}}},
    ],
)
def test_whatever_is_no_known_training_is_admitted(manifest: Any, ask: Ask) -> None:
    assert reviewed(ask, manifest)["allowed"] is True


@pytest.mark.parametrize(
    "annotation", ["[", "7", '{"cluster": 7}', '{"model": {"hidden_size": "x"}}', '{"recipe": []}']
)
def test_a_wrong_annotation_does_not_stand_in_the_way(annotation: str, ask: Ask) -> None:
    manifest = manifest_of("Job", ask, FITS)
    manifest["metadata"]["annotations"] = {"traincost/question": annotation}
    assert reviewed(ask, manifest)["allowed"] is True


@pytest.mark.parametrize(
    "body", [{}, {"apiVersion": "admission.k8s.io/v1beta1"}, review(None) | {"request": {"uid": 7}}]
)
def test_what_is_no_review_is_refused(body: Any, ask: Ask) -> None:
    answer = ask("POST", REVIEW, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == "not_a_review"


def test_another_token_finds_nothing(ask: Ask) -> None:
    for token in ("wrong", f"{ADMISSION_TOKEN}x", "%C3%A9"):
        assert ask("POST", f"/v1/adapters/kubernetes/admission/{token}", json=review(None)).status_code == 404


def slurm(ask: Ask, **job: Any) -> list[str]:
    """The lines of a job of Slurm: verdict, reason, estimate, minutes, why it was not judged, warnings."""
    answer = ask("POST", "/v1/adapters/slurm/check", json=job)
    assert answer.status_code == 200, answer.text
    *lines, last = answer.text.split("\n")
    assert len(lines) >= 5
    assert last == ""
    assert all(len(line) <= 255 for line in lines)
    return lines


def test_an_exported_script_is_judged_in_slurms_words(ask: Ask) -> None:
    script = ask("POST", "/v1/exports/sbatch", json=FITS).json()["content"]
    site = {"cluster": {"gpu": "h100"}}
    verdict, reason, estimate, minutes, why, *warnings = slurm(
        ask, script=script, nodes=2, tres_per_node="gres/gpu:8", question=site
    )
    whole = ask("POST", "/v1/check", json=FITS).json()
    assert (verdict, estimate[:4], why, warnings) == ("ok", "est_", "", [])
    assert reason.startswith("fits: ")
    assert int(minutes) == pytest.approx(whole["time_limit_seconds"] / 60, rel=0.05)
    named = slurm(ask, script=script, nodes=2, tres_per_job="gres/gpu:h100:16")
    assert named[:3] == [verdict, reason, estimate]
    for tasks in ({"tres_per_task": "gres/gpu:h100:1", "tasks": 16}, {"tres_per_task": "gres:gpu:h100:8"}):
        assert slurm(ask, script=script, nodes=2, **tasks) == named


def test_what_slurm_cannot_tell_is_unknown_and_says_why(ask: Ask) -> None:
    script = ask("POST", "/v1/exports/sbatch", json=FITS).json()["content"]
    settings = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "amp": {"enabled": true}}'
    odd = f"cat > ds.json <<'END'\n{settings}\nEND\ndeepspeed train.py --deepspeed ds.json\n"
    components = script.replace("#SBATCH --exclusive\n", "#SBATCH --exclusive\n#SBATCH hetjob\n#SBATCH --nodes=2\n")
    settings = "trainer:\n  accelerator: gpu\n  devices: 8\n  strategy: ddp\n  max_epochs: 3\n"
    own = f"cat > c.yaml <<'END'\n{settings}END\npython train.py fit --config c.yaml\n"
    for job, code, why in [
        ({"script": own, "tres_per_node": "gpu:h100:8"}, "no_model", "the caller's own code: give model"),
        ({"script": "hostname", "tres_per_node": "gpu:8"}, "no_training", "starts no training"),
        ({"script": script, "tres_per_node": "cpu:8"}, "no_gpus", "no GPU"),
        ({"script": odd, "tres_per_node": "gpu:h100:8"}, "not_understood", "amp.enabled"),
        ({"script": script, "tres_per_socket": "gpu:4"}, "gpus_per_socket", "each socket"),
        ({"script": script, "tres_per_node": "gpu:8", "component": 0}, "heterogeneous", "submitted apart"),
        ({"script": components, "tres_per_node": "gpu:8"}, "heterogeneous", "submitted apart"),
    ]:
        verdict, reason, estimate, minutes, unjudged, *warnings = slurm(ask, **job)
        assert (verdict, estimate, minutes, unjudged, warnings) == ("unknown", "", "", code, [])
        assert reason.startswith("not checked: ")
        assert why in reason


IN_FILES = (
    "CONFIGS=conf\n. conf/env.sh\ntorchrun --nproc-per-node 8 sft.py --model_name_or_path meta-llama/Llama-2-7b-hf "
    "--deepspeed $CONFIGS/ds.json --per_device_train_batch_size $BATCH --max_length 1024 --bf16 --output_dir out\n"
)
FILES = {
    "conf/ds.json": '{"zero_optimization": {"stage": 3}}',
    "conf/env.sh": "BATCH=1\n",
    "conf/other.json": '{"zero_optimization": {"stage": 1}, "train_batch_size": 7}',
    "broken.yaml": "a: [1\n",
}


def test_files_are_read_where_the_training_of_a_script_names_them(ask: Ask) -> None:
    gpus = {"tres_per_node": "gpu:h100:8"}
    assert slurm(ask, script=IN_FILES, **gpus)[4] == "unknown_value"
    assert slurm(ask, script=IN_FILES.replace("$BATCH", "1"), **gpus)[4] == "missing_file"
    verdict, _, estimate, *_ = slurm(ask, script=IN_FILES, files=FILES, **gpus)
    assert verdict == "ok"
    script = {"script": IN_FILES, "files": FILES, "gpus": 8, "gpu": "h100"}
    found = ask("POST", "/v1/adapters/scripts/check", json=script).json()
    assert found["check"]["id"] == estimate
    launch = {"launch": {"format": "script", "content": IN_FILES, "files": FILES}}
    whole = ask("POST", "/v1/check", json={**launch, "cluster": {"gpu": "h100", "gpus": 8}}).json()
    assert whole["id"] == estimate
    resolved = ask("GET", f"/v1/estimates/{estimate}").json()["resolved"]
    assert resolved["layout"]["zero_stage"] == 3


def test_too_many_files_beside_a_script_are_refused(ask: Ask) -> None:
    body = {"script": IN_FILES, "tres_per_node": "gpu:h100:8", "files": {f"{n}.yaml": "a: 1" for n in range(9)}}
    answer = ask("POST", "/v1/adapters/slurm/check", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/files")


def test_a_verdict_against_a_job_shows_what_its_reading_assumes(ask: Ask) -> None:
    script = ". /etc/env.sh\n" + ask("POST", "/v1/exports/sbatch", json=FITS).json()["content"]
    job = {"nodes": 2, "tres_per_node": "gpu:h100:8"}
    verdict, _, _, _, _, *warnings = slurm(ask, script=script, **job)
    assert (verdict, warnings) == ("ok", [])
    assumed = "/etc/env.sh, which line 1 reads, is not here: nothing that it sets counts"
    denied = script.replace("--num-layers 32", "--num-layers 999")
    verdict, _, _, _, _, *warnings = slurm(ask, script=denied, **job)
    assert (verdict, warnings) == ("deny", [f"assumed: {assumed}"])
    for content, named in ((script, True), (denied, False)):
        launch = {"format": "script", "content": content}
        found = ask("POST", "/v1/check", json={"launch": launch, "cluster": {"gpu": "h100", "gpus": 16}}).json()
        assert found["assumptions"][0] == assumed
        assert any("whose dimensions it has" in one for one in found["assumptions"]) is named


def test_training_on_gpus_that_nobody_knows_is_warned_of(ask: Ask) -> None:
    script = ask("POST", "/v1/exports/sbatch", json=FITS).json()["content"]
    for tres, code, why in (
        ("gpu:abacus:8", "unknown_gpu", 'no gpu "abacus"'),
        ("gpu:8", "required", "names a model of GPU"),
    ):
        verdict, reason, estimate, minutes, unjudged = slurm(ask, script=script, tres_per_node=tres)
        assert (verdict, estimate, minutes, unjudged) == ("warn", "", "", code)
        assert reason.startswith("not checked: ")
        assert why in reason


def test_a_broken_layout_is_warned_of(ask: Ask) -> None:
    script = (
        ask("POST", "/v1/exports/sbatch", json=FITS)
        .json()["content"]
        .replace("--tensor-model-parallel-size 8", "--tensor-model-parallel-size 7")
    )
    assert slurm(ask, script=script, nodes=2, tres_per_node="gpu:h100:8")[0] == "warn"


def test_a_hook_carries_the_address_and_the_site(ask: Ask) -> None:
    hook = ask("GET", "/v1/adapters/slurm/job_submit.lua?gpu=h100&usd_per_gpu_hour=2.5")
    assert hook.status_code == 200
    assert "localhost:8000" not in hook.text
    assert '[=[{"cluster":{"gpu":"h100"},"price":{"usd_per_gpu_hour":2.5}}]=]' in hook.text
    for wrong in ("gpux=h100", "gpu=h1000"):
        assert ask("GET", f"/v1/adapters/slurm/job_submit.lua?{wrong}").status_code == 422
    assert ask("GET", "/v1/adapters/slurm/prolog.lua").status_code == 404
    hostile = ask("GET", "/v1/adapters/slurm/cli_filter.lua", headers={"host": 'x"; os.execute("id") --'})
    assert hostile.status_code in {400, 421, 422}


def test_the_examples_of_the_contract_are_judged(ask: Ask) -> None:
    assert slurm(ask, **example_of("createSlurmCheck"))[0] == "ok"
    assert ask("POST", CHECK, json=example_of("createKubernetesCheck")).json()["verdict"] == "ok"
    assert ask("POST", REVIEW, json=example_of("createAdmissionReview")).json()["response"]["allowed"] is True


def test_the_question_of_a_site_is_no_place_to_hide(ask: Ask) -> None:
    answer = ask("POST", "/v1/adapters/slurm/check", json={"script": "", "question": []})
    assert answer.status_code == 422
    assert ask("POST", "/v1/check", json={**QUESTION, "question": {}}).status_code == 422


def test_the_list_of_adapters_names_every_file_and_what_it_asks(ask: Ask) -> None:
    listed = ask("GET", "/v1/adapters").json()["items"]
    assert [one["path"] for one in listed] == [f"/v1/adapters/{one['scheduler']}/{one['name']}" for one in listed]
    assert {one["scheduler"] for one in listed} == {"slurm", "kubernetes", "kueue", "ray", "skypilot"}
    for one in listed:
        file = ask("GET", one["path"])
        assert file.status_code == 200
        assert one["check"].removesuffix("{token}") in file.text or one["name"] == "manifests.yaml"
    (webhook,) = [one for one in listed if one["name"] == "webhook.yaml"]
    assert webhook["kinds"] == [kind for kind in KINDS if kind != "Workload"]
