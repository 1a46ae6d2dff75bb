"""A profile beside its prediction: parts that sum, what explains the difference, and what to learn from it."""

import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from service.answers.profiles import ProfileAnswer
from service.api.openapi import request_bodies
from service.catalogue import Catalogue
from service.errors import Refused
from service.features.profiles.profiles import profile
from tests.api.asking import Ask
from tests.calibration.two_steps import MAIN, SIDE, event
from tests.commands import Commands

TRACE: dict[str, Any] = request_bodies("createProfile")["example"]["value"]
QUESTION: dict[str, Any] = {
    "model": "smollm2-135m",
    "recipe": {"sequence_length": 2048, "micro_batch": 4, "stack": "transformers"},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 1},
}
FLAT = {"model": "smollm2-135m", "sequence_length": 2048, "mbs": 4, "stack": "transformers", "gpu": "h100", "gpus": 1}
WORKERS = Path(__file__).parents[2] / "calibration" / "traces" / "worker-smollm2-eager.json.gz"


def found(catalogue: Catalogue, *raw: dict[str, Any], question: Any = QUESTION, **head: Any) -> ProfileAnswer:
    content = {**TRACE, **head, **({"traceEvents": list(raw)} if raw else {})}
    return profile(json.dumps(content).encode(), question, catalogue, has_records=True)


def step(*events: dict[str, Any], length: int = 1000) -> list[dict[str, Any]]:
    return [event("user_annotation", "ProfilerStep#1", 0, length), *events]


def test_parts_and_their_predictions_sum_to_both_steps(catalogue: Catalogue) -> None:
    answer = found(catalogue)
    predicted = answer.prediction
    assert predicted is not None
    assert sum(part.measured_seconds for part in predicted.parts) == pytest.approx(answer.step_seconds.value)
    assert sum(part.predicted_seconds for part in predicted.parts) == pytest.approx(predicted.step_seconds.value)
    assert {part.kind: part.measured_parts for part in predicted.parts}["gemm"] == ("gemm",)
    assert predicted.measured_over_predicted_fraction == pytest.approx(0.07 / predicted.step_seconds.value)
    assert (answer.gpu, answer.ranks, answer.warnings) == ("h100-sxm5-80gb", 1, ())


REPEATED = (
    ({"recompute": "full"}, {"gemm", "attention", "elementwise"}),
    ({"recompute": "selective", "stack": "megatron-core", "attention": "eager"}, {"attention"}),
)


@pytest.mark.parametrize(("recipe", "repeated"), REPEATED)
def test_recompute_is_divided_over_what_it_repeats(
    recipe: dict[str, Any], repeated: set[str], catalogue: Catalogue
) -> None:
    asked = {**QUESTION, "model": "gpt2-124m", "recipe": {"sequence_length": 1024, **recipe}}
    predicted = found(catalogue, question=asked).prediction
    assert predicted is not None
    assert sum(part.predicted_seconds for part in predicted.parts) == pytest.approx(predicted.step_seconds.value)
    assert {part.kind for part in predicted.parts if "recompute" in part.predicted_parts} == repeated


def test_a_measured_step_moves_the_next_prediction_and_does_not_feed_on_itself(catalogue: Catalogue) -> None:
    first = found(catalogue).prediction
    assert first is not None
    assert first.measured_step is not None
    steps = [{"predicted_seconds": first.measured_step.predicted_seconds, "measured_seconds": 0.07}] * 4
    later = found(
        catalogue, question={**QUESTION, "cluster": {**QUESTION["cluster"], "measured_steps": steps}}
    ).prediction
    assert later is not None
    assert abs(later.step_seconds.value - 0.07) < abs(first.step_seconds.value - 0.07)
    assert later.measured_step == first.measured_step


OTHERS: dict[str, dict[str, Any]] = {
    "another GPU": {"deviceProperties": [{"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85 * 10**9}]},
    "no GPU": {"deviceProperties": []},
}


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_learnt_of_other_hardware(name: str, catalogue: Catalogue) -> None:
    answer = found(catalogue, **OTHERS[name])
    assert answer.prediction is not None
    assert answer.prediction.measured_step is None


def test_a_step_of_a_processor_is_compared_with_a_warning_and_without_learning(catalogue: Catalogue) -> None:
    answer = profile(WORKERS.read_bytes(), QUESTION, catalogue, has_records=True)
    assert answer.profile.on == "host"
    assert answer.prediction is not None
    assert answer.prediction.measured_step is None
    assert answer.records == ()
    assert any("no kernels" in warning for warning in answer.warnings)


def test_the_products_of_the_example_are_a_record(catalogue: Catalogue) -> None:
    records = found(catalogue).records
    assert records is not None
    (record,) = records
    assert [one.shape["rows"] for one in record.measurements] == [8192]


def kinds(answer: ProfileAnswer) -> list[str]:
    return [finding.kind for finding in answer.findings]


WAIT = event("user_annotation", "enumerate(DataLoader)#_Single.__next__", 100, 900)
CAUSES: dict[str, list[dict[str, Any]]] = {
    "waiting_for_data": [event("kernel", "gemm", 0, 100, stream=MAIN), WAIT],
    "synchronisation": [
        event("kernel", "gemm", 0, 100, stream=MAIN), event("cuda_runtime", "cudaStreamSynchronize", 150, 950)
    ],
    "launch_bound": [event("kernel", "gemm", at, at + 10, stream=MAIN) for at in range(0, 1000, 40)],
    "idle": [event("kernel", "gemm", 0, 100, stream=MAIN), event("cpu_op", "tokenise", 100, 990)],
    "no_overlap": [
        event("kernel", "gemm", 0, 500, stream=MAIN), event("kernel", "ncclDevKernel_AllReduce", 500, 1000, stream=SIDE)
    ],
    "copies": [
        event("kernel", "gemm", 0, 500, stream=MAIN),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 500, 1000, stream=MAIN, copied=1 << 20),
    ],
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_the_largest_loss_is_named_first_with_what_to_change(cause: str, catalogue: Catalogue) -> None:
    answer = found(catalogue, *step(*CAUSES[cause]), question=None)
    assert kinds(answer)[0] == cause
    assert all(finding.message and finding.fix for finding in answer.findings)
    assert answer.prediction is None


def test_attention_without_a_fused_kernel_and_a_slow_optimizer_explain_a_difference(catalogue: Catalogue) -> None:
    long = 200_000
    answer = found(
        catalogue,
        *step(
            event("kernel", "cutlass_gemm", 0, 16_900, stream=MAIN),
            event("kernel", "softmax_warp_forward", 16_900, 60_000, stream=MAIN),
            event("kernel", "multi_tensor_apply_kernel", 60_000, long, stream=MAIN),
            length=long,
        ),
    )
    by_kind = {finding.kind: finding for finding in answer.findings}
    assert kinds(answer)[0] == "optimizer"
    assert "multi_tensor_apply_kernel" in by_kind["optimizer"].message
    assert "no fused kernel" in by_kind["attention"].message


def test_what_limits_the_comparison_is_said(catalogue: Catalogue) -> None:
    raw = [event("kernel", "gemm", 0, 100, stream=MAIN)]
    head = {"distributedInfo": {"world_size": 8}, "with_stack": 1}
    warnings = " ".join(found(catalogue, *raw, **head).warnings)
    for words in ("without with_stack", "names no steps", "8 processes"):
        assert words in warnings
    assert "one step" in " ".join(found(catalogue, *step(*raw)).warnings)
    assert "no optimizer step" in " ".join(found(catalogue, *step(*raw)).warnings)


def test_the_question_is_taken_by_its_fields_or_as_json(ask: Ask) -> None:
    body = json.dumps(TRACE).encode()
    packed, headers = gzip.compress(body), {"Content-Type": "application/gzip"}
    flat = ask("POST", f"/v1/profiles?{urlencode(FLAT)}", content=packed, headers=headers)
    whole = ask("POST", f"/v1/profiles?{urlencode({'question': json.dumps(QUESTION)})}", json=TRACE)
    assert flat.status_code == whole.status_code == 200, flat.text
    assert flat.json()["prediction"] == whole.json()["prediction"]
    alone = ask("POST", "/v1/profiles?records=products", content=packed, headers=headers).json()
    assert alone["prediction"] is None
    imported = ask("POST", "/v1/measurements", json={"records": alone["records"]})
    assert (imported.status_code, imported.json()["measurements"]) == (200, 1)


@pytest.mark.parametrize(
    ("query", "parameter", "code"),
    [
        ({**FLAT, "tensr": 2}, "", "unknown_field"),
        ({**FLAT, "model": "lama"}, "model", "unknown_model"),
        ({"model": "smollm2-135m"}, "", "required"),
        ({**FLAT, "question": "{}"}, "question", "contradiction"),
        ({"question": "{"}, "question", "not_json"),
        ({"question": "[]"}, "question", "not_json"),
        ({"records": "all"}, "records", "not_a_choice"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused_by_its_parameter(
    query: dict[str, Any], parameter: str, code: str, ask: Ask
) -> None:
    refused = ask("POST", f"/v1/profiles?{urlencode(query)}", json=TRACE)
    assert refused.status_code == 422, refused.text
    errors = refused.json()["errors"]
    assert code in {error["code"] for error in errors}
    assert not parameter or parameter in {error.get("parameter") for error in errors}
    assert all("pointer" not in error for error in errors)


def test_a_wrong_trace_is_refused_by_the_body(ask: Ask) -> None:
    for content, code in (
        (b"", "empty"),
        (b"{}", "not_a_trace"),
        (b"\x1f\x8b1", "not_gzip"),
        (b"\xff\xfe", "not_text"),
    ):
        refused = ask("POST", "/v1/profiles", content=content, headers={"Content-Type": "application/octet-stream"})
        assert refused.status_code == 422, refused.text
        (error,) = refused.json()["errors"]
        assert (error["pointer"], error["code"]) == ("", code)
    assert ask("POST", "/v1/profiles", content=b"a: 1", headers={"Content-Type": "text/yaml"}).status_code == 415


def test_the_command_answers_as_the_api_does(ask: Ask, tmp_path: Path, commands: Commands) -> None:
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(json.dumps(TRACE).encode()))
    (tmp_path / "question.json").write_text(json.dumps(QUESTION), encoding="utf-8")
    command = commands("profile")
    words = str(tmp_path / "trace.json.gz"), str(tmp_path / "question.json"), "--records", str(tmp_path / "out.json")
    answered = json.loads(command(*words, "--json").out)
    query = urlencode({"question": json.dumps(QUESTION), "records": "products"})
    assert answered == ask("POST", f"/v1/profiles?{query}", json=TRACE).json()
    assert json.loads((tmp_path / "out.json").read_bytes())["records"] == answered["records"]
    report = command(*words[:2]).out
    for line in ("70 ms a step by kernels, median of 2", "Measured, and predicted", "cluster.measured_steps"):
        assert line in report
    assert "Longest gaps" in command(str(WORKERS)).out
    absent = command(str(tmp_path / "absent"))
    assert (absent.code, absent.err.count("\n")) == (2, 1)
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    refused = command(str(tmp_path / "notes.txt"))
    assert (refused.code, "export_chrome_trace" in refused.err) == (2, True)


def test_a_question_that_cannot_be_read_is_refused_before_the_trace(catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        profile(b"", {**QUESTION, "model": "lama"}, catalogue)
    assert refused.value.problems[0].field == "model"
