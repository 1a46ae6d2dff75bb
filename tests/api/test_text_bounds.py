"""Texts whose structure no real file has are refused before a parser reads them, with a code and a place."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.api.asking import ADMISSION_TOKEN, QUESTION, Ask

MEGATRON = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 99 --seq-length 128"
LONG = 240_000
"""Characters of a text that is too long to be read at once."""

ATTACKS: list[tuple[str, str, str, int]] = [
    ("torchtitan", ".".join("a" * (LONG // 2)) + " = 1\n", "too_deep", 1),
    ("torchtitan", "\n[" + ".".join("a" * 20_000) + "]\n", "too_deep", 2),
    ("torchtitan", "\n\na = {" + ".".join(['"a"'] * 20) + " = 1}\n", "too_deep", 3),
    ("torchtitan", "a = " + "[" * 17 + "]" * 17, "too_deep", 1),
    ("torchtitan", "b = 1\na = " + "1" * 4301, "too_many_digits", 2),
    ("torchtitan", "a = 1_" + "1_" * 4300 + "1", "too_many_digits", 1),
    ("torchtitan", "a = 0x" + "f" * 65, "too_many_digits", 1),
    ("torchtitan", "a = 1." + "1" * 5000, "too_many_digits", 1),
    ("torchtitan", "".join(f"k{n} = 1\n" for n in range(5000)), "too_long", 4097),
    ("torchtitan", "[[a]]\n" * 5000, "too_long", 4097),
    ("torchtitan", "a = [" + "1," * 20_000 + "]", "too_long", 1),
    ("torchtitan", "[" + "a" * 300 + "]\nb = 1\n", "too_long", 2),
    ("torchtitan", 'a = """' + '\\"""' * 20_000, "not_toml", 1),
    ("torchtitan", "a = 2020-13-45\n", "not_toml", 1),
    ("nanotron", "a: " + "{a: " * 1000, "too_deep", 1),
    ("nanotron", "".join(" " * depth + "a:\n" for depth in range(40)), "too_deep", 17),
    ("nanotron", "a: &x 1\n" + "".join(f"b{n}: *x\n" for n in range(5000)), "too_long", 1),
    ("nanotron", "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)),
     "too_long", 5),
    ("nanotron",
     "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: *a{n - 1}}}\n" for n in range(1, 30)),
     "too_long", 12),
    ("nanotron", f"a: &a {'x' * 60_000}\nb:\n" + "- *a\n" * 9, "too_long", 6),
    ("nanotron", "a: &a [*a, *a]\n", "anchor", 1),
    ("nanotron", "a: {<<: *x}\n", "anchor", 1),
    ("nanotron", "%TAG !a! b\n" * 20_000 + "---\na: 1\n", "too_long", 9),
    ("nanotron", "".join(f"k{n}: 1\n" for n in range(5000)), "too_long", 4097),
    ("nanotron", "a: [" + "1," * 20_000 + "]", "too_long", 1),
    ("nanotron", "? " + "a" * 300 + "\n: 1\n", "too_long", 2),
    ("nanotron", 'a: "\\x00"\nb: {"\\0": 1}\n', "not_text", 2),
    ("deepspeed", '{"a":' * 40_000, "too_deep", 1),
    ("deepspeed", '{"a":\n' + "[" * 17 + "]" * 17 + "}", "too_deep", 2),
    ("deepspeed", '{"a": ' + "1" * 4301 + "}", "too_many_digits", 1),
    ("deepspeed", '{"a": [' + "1," * 20_000 + "1]}", "too_long", 1),
    ("deepspeed", '{"' + "a" * 300 + '": 1}', "too_long", 1),
    ("deepspeed", '{"\\ud800": 1}', "not_text", 1),
    ("deepspeed", '{"a": "\\ud800"}', "not_text", 1),
    ("megatron-lm", MEGATRON + "\n" * 200_000 + "b " * 20_000, "too_long", 200_001),
    ("megatron-lm", f"{MEGATRON} \\\n --train-iters {'1' * 4301}", "too_many_digits", 2),
    ("megatron-lm", f"{MEGATRON} --{'a' * 300}", "too_long", 1),
    ("megatron-lm", f"{MEGATRON} --pipeline-model-parallel-layout '{'(t)*9999' * 400}'", "not_a_layout", 1),
]  # fmt: skip


def launched(kind: str, content: str) -> dict[str, Any]:
    return {"launch": {"format": kind, "content": content}, "cluster": QUESTION["cluster"]}


def refused(answer: httpx.Response, field: str, code: str, line: int) -> None:
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    error = answer.json()["errors"][0]
    assert (error["pointer"].strip("/").replace("/", "."), error["code"]) == (field, code)
    assert error["message"].startswith(f"line {line}, column ")
    assert error["fix"]


@pytest.mark.parametrize(("kind", "text", "code", "line"), ATTACKS)
def test_a_hostile_file_is_refused_with_its_line(kind: str, text: str, code: str, line: int, ask: Ask) -> None:
    answer = ask("POST", f"/v1/imports/{kind}", content=text.encode(), headers={"content-type": "text/plain"})
    refused(answer, "content", code, line)


@pytest.mark.parametrize(("kind", "text", "code", "line"), ATTACKS[::5])
def test_a_check_refuses_it_too(kind: str, text: str, code: str, line: int, ask: Ask) -> None:
    body = json.dumps(launched(kind, text), ensure_ascii=False).encode()
    answer = ask("POST", "/v1/check", content=body, headers={"content-type": "application/json"})
    refused(answer, "launch.content", code, line)


def script(file: str) -> str:
    return f"cat > a.toml <<END\n{file}\nEND\ntorchrun train.py --job.config_file a.toml\n"


def slurm(ask: Ask, text: str) -> str:
    """The verdict and the reason that Slurm is given."""
    job = {"script": text, "tres_per_node": "gres/gpu:h100:8"}
    return " ".join(ask("POST", "/v1/adapters/slurm/check", json=job).text.split("\n")[:2])


def webhook(ask: Ask, text: str) -> str:
    """What the webhook answers to a job."""
    container = {"command": ["bash", "-c", text], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    manifest = {"kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}
    request = {"uid": "1", "operation": "CREATE", "object": manifest}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = ask("POST", f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}", json=review)
    assert answer.status_code == 200, answer.text
    return f"allowed {answer.json()['response']['allowed']}"


@pytest.mark.parametrize(
    "text",
    [
        script(ATTACKS[0][1]),
        script("a = " + "1" * 4301),
        "".join(f"cat > f{n} <<E{n}\nx\nE{n}\n" for n in range(5000)),
        "cat > f <<X\n" * 5000,
        "run_train.py " * 5000,
        "accelerate" + " " * 100_000 + "launch",
        "cat>" * 20_000 + "<<X\n",
        "\u2028" * 20_000,
    ],
)
@pytest.mark.parametrize("scheduler", [slurm, webhook])
def test_a_scheduler_is_let_through_by_a_hostile_script(scheduler: Callable[..., str], text: str, ask: Ask) -> None:
    assert scheduler(ask, text).startswith(("unknown not checked: ", "allowed True"))


def test_a_hostile_annotation_does_not_stand_in_the_way(ask: Ask) -> None:
    container = {"command": ["python", "pretrain_gpt.py"], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    job: dict[str, Any] = {"kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}
    for text in ('{"a":' * 50_000, '{"price": {"provider": "\\ud800"}}', '{"cluster": {"gpus": NaN}}', "[" * 100_000):
        job["metadata"] = {"annotations": {"traincost/question": text}}
        answer = ask("POST", "/v1/adapters/kubernetes/check", json=job)
        assert (answer.status_code, answer.json()["verdict"]) == (200, "unknown")


GEMM = "device,dtype,rows,columns,inner,seconds\n"
NCCL = (
    "# Rank 0 Group 0 Pid 1 on h device 0 [0x0f] NVIDIA H100\n# Rank 1 Group 0 Pid 2 on h device 1 [0x1f] NVIDIA H100\n"
    "# size count type redop root time algbw busbw #wrong\n# (B) (elements) (us) (GB/s) (GB/s)\n"
)
DEVICES = f'{{"segments":[{"{}," * 20_000}{{}}],"device_traces":[{"[]," * 20_000}[]]}}'
TABLES: list[tuple[str, str, str]] = [
    ("gemm-csv", f"{GEMM}H100,bf16,{'9' * 4301},1,1,1\n", "not_a_whole_number"),
    ("gemm-csv", f"{GEMM}H100,bf16,1,1,1,{'1' * 400}\n", "not_a_number"),
    ("gemm-csv", f"{GEMM}H100,bf16,1,1,1,1e308\n", "not_a_number"),
    ("gemm-csv", f"{GEMM}H100,bf16,1,1,1,5e-324\n", "not_a_number"),
    ("gemm-csv", f"{GEMM}H100,bf16,1,1,1,1e9\n", "out_of_range"),
    ("gemm-csv", f"{GEMM}{'a' * 200_000}\n", "not_csv"),
    ("gemm-csv", f"{GEMM}" + "H100,bf16,1,1,1,0.1\n" * 5000, "too_long"),
    ("gemm-csv", GEMM + "".join(f"H{n},bf16,1,1,1,0.1\n" for n in range(100)), "too_long"),
    ("gemm-csv", "device," * 1000, "too_many_columns"),
    ("gemm-csv", "\ufeff\ufeff", "missing_column"),
    ("nccl-tests", f"{NCCL}{'9' * 400} 2 float sum -1 28 37 37 0\n", "not_a_number"),
    ("nccl-tests", NCCL.replace("size count type", "time algbw busbw size type") + "1 2 3\n", "short_row"),
    ("nccl-tests", f"# Rank {'1' * 5000} Group 0 Pid 1 on h device 0 [0x0f] A\n", "no_devices"),
    ("nccl-tests", f"# Rank 0 Group 0 Pid 1 on h device 0 [0x0f] A{' ' * 100_000}B\n", "no_devices"),
    ("memory-snapshot", DEVICES, "too_long"),
    ("memory-snapshot", f'{{"segments":[{{"total_size":{"9" * 400}}}]}}', "not_a_whole_number"),
    ("memory-snapshot", f'{{"segments":[{{"total_size":{"9" * 4301}}}]}}', "not_json"),
    ("memory-snapshot", "[" * 100_000, "not_json"),
]


@pytest.mark.parametrize(("kind", "text", "code"), TABLES)
def test_a_hostile_file_of_measurements_is_refused(kind: str, text: str, code: str, ask: Ask) -> None:
    beside = "?device=H100" if kind == "memory-snapshot" else ""
    path = f"/v1/measurements/imports/{kind}{beside}"
    answer = ask("POST", path, content=text.encode(), headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, code), answer.text


def test_a_count_of_wrong_numbers_that_is_none_tells_nothing(ask: Ask) -> None:
    for wrong in ("9" * 4000, "²"):
        text = f"{NCCL}262144 65536 float sum -1 28.00 9.36 9.36 {wrong}\n"
        path = "/v1/measurements/imports/nccl-tests?operation=all_reduce"
        answer = ask("POST", path, content=text.encode(), headers={"content-type": "text/plain"})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "media_type", "text", "code"),
    [
        ("/v1/prices/import", "text/csv", "provider," * 5000, "too_many_columns"),
        ("/v1/prices/import", "text/csv", ",".join(f"c{n}" for n in range(5000)), "too_many_columns"),
        ("/v1/reconciliations", "text/plain", "JobID|" * 5000, "too_many_columns"),
        ("/v1/reconciliations", "text/plain", "|".join(f"c{n}" for n in range(5000)), "too_many_columns"),
        ("/v1/reconciliations", "text/plain", "JobID|State|ElapsedRaw|AllocTRES|Start|Comment\n" + "x\n" * 100_001,
         "too_many_rows"),
    ],
)  # fmt: skip
def test_a_table_with_more_columns_or_rows_than_any_is_refused(
    path: str, media_type: str, text: str, code: str, ask: Ask
) -> None:
    answer = ask("POST", path, content=text.encode(), headers={"content-type": media_type})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, code), answer.text


def padded(kind: str, size: int) -> tuple[str, str]:
    """A file that is read, without and with comments that make it long."""
    comment = "# a comment of a file that is kept\n"
    files = {
        "torchtitan": ("[training]\nseq_len = 4096\nlocal_batch_size = 2\n", comment),
        "nanotron": (
            "tokens:\n  sequence_length: 4096\n  micro_batch_size: 2\n",
            "# a comment of a file that is kept\n",
        ),
        "megatron-lm": (f"{MEGATRON} --micro-batch-size 2\n", comment),
        "deepspeed": ('{"train_micro_batch_size_per_gpu": 2}', " "),
    }
    text, filling = files[kind]
    return text, text + filling * (size // len(filling))


@pytest.mark.parametrize("kind", ["torchtitan", "nanotron", "megatron-lm", "deepspeed"])
def test_a_long_file_says_what_a_short_one_does(kind: str, ask: Ask) -> None:
    """A long body is read in another process, with the same answer."""
    answers = [
        ask("POST", f"/v1/imports/{kind}", content=text.encode(), headers={"content-type": "text/plain"})
        for text in padded(kind, 100_000)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


def test_a_long_check_is_judged_and_kept_as_a_short_one(ask: Ask) -> None:
    _, text = padded("megatron-lm", 100_000)
    bodies = [launched("megatron-lm", text), launched("megatron-lm", f"{MEGATRON} --micro-batch-size 2")]
    answers = [ask("POST", "/v1/check", json={**body, "deadline_seconds": 0}).json() for body in bodies]
    assert answers[0] == answers[1]
    assert answers[0]["verdict"] == "ok"


@pytest.mark.parametrize(("body", "status"), [(b"{" + b" " * 50_000, 400), (b"[" + b" " * 50_000 + b"]", 400)])
def test_a_long_body_that_is_no_json_is_refused_as_a_short_one(body: bytes, status: int, ask: Ask) -> None:
    for path in ("/v1/check", "/v1/estimates", "/v1/adapters/slurm/check"):
        answer = ask("POST", path, content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (status, "not_json")
